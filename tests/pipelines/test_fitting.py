"""What a run does about a lost worker: what counts as one, how often, with how many it goes on."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from ray.exceptions import RayActorError

from cotbert_core.checkpoints import write_checkpoint
from cotbert_core.errors import UserError
from cotbert_core.settings import TrainSettings
from pipelines import fitting
from pipelines.fitting import Job, TrainingError, fewer_workers, fit, is_loss, workers_now
from pipelines.recipes import settings_for


def settings(**changes):
    flags = {"batch_size": 12, "workers": 4, **changes}
    return settings_for("quickstart", None, [], flags)


@pytest.mark.parametrize(
    ("room", "least", "expected"),
    [(4, 1, 4), (3, 1, 3), (5, 1, 4), (2, 2, 2), (1, 2, None), (0, 1, None)],
)
def test_the_most_workers_that_share_the_batch_evenly(room, least, expected):
    assert fewer_workers(settings(min_workers=least), room) == expected
    assert fewer_workers(settings(batch_size=8, min_workers=1), 3) == 2, "8 sentences, not 3 ways"


def test_min_workers_above_workers_is_refused():
    with pytest.raises(UserError, match="min_workers is 5: give at most workers"):
        settings(min_workers=5)


def test_a_cluster_without_room_is_waited_for_and_then_gone_on_with(monkeypatch, capsys):
    rooms = iter([2, 2, 4])
    monkeypatch.setattr(fitting, "_room", lambda cpus: next(rooms))
    monkeypatch.setattr(fitting, "POLL_SECONDS", 0.0)
    assert workers_now(settings(min_workers=1), patience=60) == 4, "the node came back"
    monkeypatch.setattr(fitting, "_room", lambda cpus: 2)
    assert workers_now(settings(min_workers=1), patience=0) == 2
    assert "the cluster has room for 2 workers: going on with 2" in capsys.readouterr().err
    assert workers_now(settings(), patience=0) == 4, "without min_workers Ray waits"


def error(*failures):
    return SimpleNamespace(worker_failures=dict(enumerate(failures)))


def test_a_death_is_a_loss_and_a_failure_is_none():
    wrapped = SimpleNamespace(health_check_failure=RayActorError())
    assert is_loss(error(ValueError("connection closed by peer"), wrapped))
    assert is_loss(error(RayActorError(), ValueError("peer is gone")))
    assert not is_loss(error(ValueError("the loss at step 2 is nan")))
    assert not is_loss(SimpleNamespace(worker_failures=None))


class Trainer:
    """Fails as it is told, and writes a checkpoint before where it is told."""

    def __init__(self, job, ends):
        self._job, self._ends, self.started = job, ends, 0

    def fit(self):
        import ray.train

        failure, step = self._ends[self.started]
        self.started += 1
        if step:
            write_checkpoint(self._job.checkpoints, step, 1.0, {})
        if failure is not None:
            raise ray.train.WorkerGroupError("lost", {0: failure})


@pytest.fixture
def trained(tmp_path, monkeypatch):
    job = Job(settings(), tmp_path, {}, tmp_path)

    def run(*ends):
        trainer = Trainer(job, ends)
        monkeypatch.setattr(fitting, "_trainer", lambda *_: trainer)
        try:
            fit(job, mailbox=None)
        finally:
            run.started = trainer.started

    return run


def test_a_run_goes_on_after_losses_and_says_from_where(trained, capsys):
    trained((RayActorError(), 0), (RayActorError(), 40), (None, 0))
    told = capsys.readouterr().err
    assert "going on from the beginning" in told
    assert "going on from the checkpoint of step 40" in told


def test_losses_without_progress_end_the_run(trained):
    with pytest.raises(TrainingError):
        trained(*[(RayActorError(), 0)] * 9)
    assert trained.started == fitting.RESTARTS + 1
    with_progress = [(RayActorError(), step) for step in (1, 2, 3, 4, 5, 6)]
    trained(*with_progress, (None, 0))
    assert trained.started == 7


def test_what_no_restart_can_mend_ends_the_run_at_once(trained):
    with pytest.raises(TrainingError, match="the loss at step 2 is nan"):
        trained((ValueError("the loss at step 2 is nan"), 4))
    assert trained.started == 1


def test_settings_of_one_worker_need_no_fewer():
    assert TrainSettings(workers=1).min_workers is None
