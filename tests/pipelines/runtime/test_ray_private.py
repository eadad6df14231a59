"""The private parts of Ray that are used, and what to do when a new Ray no longer has one."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray
import ray.train
from ray.exceptions import RayActorError
from ray.train.torch import TorchTrainer

from pipelines.runtime import ray_private


@contextmanager
def explained(part: str, advice: str) -> Iterator[None]:
    """Turn the loss of a private part into a sentence that says what to do."""
    try:
        yield
    except (ImportError, AttributeError, TypeError, AssertionError) as error:
        pytest.fail(
            f"Ray {ray.__version__} has changed {part} ({type(error).__name__}: {error}): {advice}"
        )


def test_rays_folder_can_be_chosen():
    with explained(
        "the option _temp_dir of ray.init",
        "look in its docstring for the public name, or set RAY_TMPDIR around it and lower "
        "LONGEST_FOLDER in pipelines/runtime/ray_folders.py by 2",
    ):
        options = ray_private.temporary_folder(Path("/tmp/a"))
        assert all(f"``{name}``" in inspect.getdoc(ray.init) for name in options)


def test_a_node_can_be_kept_on_loopback(monkeypatch):
    with explained(
        "ENABLE_RAY_CLUSTER in ray._private.ray_constants",
        "find where RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER is read now; if each call reads it, delete "
        "loopback_address. tests/pipelines/test_open_doors.py shows whether all sockets are still "
        "on 127.0.0.1",
    ):
        from ray._private import ray_constants

        monkeypatch.setattr(ray_constants, "ENABLE_RAY_CLUSTER", True)
        with ray_private.loopback_address():
            assert ray.util.get_node_ip_address() == "127.0.0.1"
        assert ray_constants.ENABLE_RAY_CLUSTER is True


def test_workers_can_import_nothing_from_the_current_folder(monkeypatch):
    with explained(
        "JobConfig, or what ray._private.worker.connect adds to the workers' sys.path",
        "look in connect for the current folder, and leave it out in job_config; then run `cotbert "
        "embed --workers 2` where a folder `pipelines` has an __init__.py that raises an error",
    ):
        from ray._private import worker

        config = ray_private.job_config()
        assert config._client_job
        assert all((Path(path) / "pipelines").is_dir() for path in config._py_driver_sys_path)
        adds = "if not job_config._client_job and not job_config._runtime_env_has_working_dir():"
        assert adds in inspect.getsource(worker.connect)
        monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
        assert ray_private.job_config() is None


def test_rays_messages_can_be_written_elsewhere(capsys):
    with explained(
        "listen_error_messages in ray._private.worker, which prints by print_to_stdstream",
        "find what prints Ray's messages about lost workers now, and hand them to `write` in "
        "messages_to; kill a worker of `cotbert embed`: its standard output is the result alone",
    ):
        from ray._private import worker

        stopped, written = threading.Event(), []
        found = [{"job_id": None, "error_message": "a worker died"}]

        def poll():
            if not found:
                stopped.set()
            return b"", found.pop() if found else None

        driver = SimpleNamespace(
            gcs_error_subscriber=SimpleNamespace(subscribe=lambda: None, poll=poll),
            current_job_id=ray.JobID.nil(),
        )
        with ray_private.messages_to(written.append):
            worker.listen_error_messages(driver, stopped)
        assert written == ["a worker died"]
        assert capsys.readouterr().out == ""


def test_the_agent_of_a_ray_can_have_any_free_port():
    with explained(
        "ray._private.parameter.RayParams, which ray.init makes",
        "look whether ray.init has an argument for the agent's port now, and delete "
        "free_agent_port. Without it the second Ray of a machine starts some 4 s later",
    ):
        from ray._private import parameter, worker

        assert "ray._private.parameter.RayParams(" in inspect.getsource(worker.init)
        with ray_private.free_agent_port():
            assert parameter.RayParams().dashboard_agent_listen_port == 0
        assert parameter.RayParams().dashboard_agent_listen_port == 52365


def test_a_replica_of_serve_can_be_kept_on_loopback(monkeypatch):
    with explained(
        "the gRPC port of a replica of Ray Serve",
        "look in ray/serve/_private/replica.py for the address at which a replica listens; if that "
        "is the node's, delete keep_replica_on_loopback. tests/pipelines/serving/test_serve.py "
        "shows whether all sockets are still on 127.0.0.1",
    ):
        from ray.serve._private import replica

        assert 'add_port_to_grpc_server(self._server, "[::]:0")' in inspect.getsource(replica)
        ports = []
        monkeypatch.setattr(replica, "add_port_to_grpc_server", lambda _, port: ports.append(port))
        for address in ("10.0.0.1", "127.0.0.1"):
            monkeypatch.setattr(ray.util, "get_node_ip_address", lambda address=address: address)
            ray_private.keep_replica_on_loopback()
            replica.add_port_to_grpc_server(None, "[::]:0")
        assert ports == ["[::]:0", "127.0.0.1:0"]


def test_a_trainer_reports_its_cores_and_has_rays_callbacks_but_the_cleaner(monkeypatch):
    with explained(
        "the default callbacks of its TorchTrainer, or the state of its worker group",
        "look in ray/train/v2/api/data_parallel_trainer.py for where default callbacks are made "
        "now. Without ours, cores that a failed start holds are never released "
        "(docs/upstream.md: look whether Ray has mended that, and then delete it)",
    ):
        from ray.train.v2._internal.execution.callback import WorkerGroupCallback
        from ray.train.v2._internal.execution.worker_group import WorkerGroup
        from ray.train.v2._internal.execution.worker_group.placement_group_handle import (
            PlacementGroupHandle,
        )
        from ray.train.v2._internal.execution.worker_group.state import WorkerGroupState

        held = []
        messages = SimpleNamespace(set_reservation=SimpleNamespace(remote=held.append))
        monkeypatch.setattr(ray, "get", lambda reference: reference)
        scaling = ray.train.ScalingConfig(num_workers=1)
        plain = TorchTrainer(lambda: None, scaling_config=scaling)
        ours = ray_private.trainer(messages, lambda: None, scaling_config=scaling)
        names = [type(c).__name__ for c in plain._create_default_callbacks()]
        [first, *others] = ours._create_default_callbacks()
        names.remove("PlacementGroupCleanerCallback")
        assert [type(c).__name__ for c in others] == names
        assert callable(WorkerGroupCallback.after_worker_group_start)
        assert callable(WorkerGroup.get_worker_group_state)
        assert "placement_group_handle" in {field.name for field in fields(WorkerGroupState)}
        assert "placement_group" in dir(PlacementGroupHandle)
        state = SimpleNamespace(placement_group_handle=SimpleNamespace(placement_group="cores"))
        first.after_worker_group_start(SimpleNamespace(get_worker_group_state=lambda: state))
        assert held == ["cores"]


def test_failures_to_start_are_distinguished():
    with explained(
        "the errors of ray.train.v2._internal.exceptions",
        "look whether ray.train has public names for them now, else for their new place; without "
        "them a run takes a cluster without room for a lost worker, and a lost worker for a fault",
    ):
        from ray.train.v2._internal import exceptions

        late = exceptions.WorkerGroupStartupTimeoutError(2)
        died = exceptions.WorkerGroupStartupFailedError("a worker died")
        unheard = exceptions.WorkerHealthCheckFailedError("no answer", RayActorError())
        assert ray_private.start_timed_out(ray.train.ControllerError(late).controller_failure)
        assert ray_private.start_failed(ray.train.ControllerError(died).controller_failure)
        assert not ray_private.start_timed_out(died)
        assert not ray_private.start_failed(late)
        assert isinstance(ray_private.cause_of_death(unheard), RayActorError)
        assert ray_private.cause_of_death(late) is late
