"""Fixtures of the jobs: an MLflow store of the test's own, and Ray."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import mlflow_server
import pytest

from cotbert_core.templates import vocabulary_fit

MLFLOW_STORE = "MLFLOW_TRACKING_URI"


RATES = """
name: rates
purpose: Learning rates of use, of none, and one that blows up.
recipe: quickstart
settings:
  optimizer.learning_rate: {grid: [1.0e-3, 1.0e-12, 1.0e+30]}
"""


@pytest.fixture(autouse=True)
def small_jobs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What jobs of unit tests leave out. Those in processes of their own do not, so neither do
    those in this one where a test compares both."""
    marks = {mark.name for mark in request.node.iter_markers()}
    if marks & {"ray_local", "real"}:
        return
    # The vocabulary of the tiny encoders, a few words of English, fits no text.
    monkeypatch.setattr(vocabulary_fit, "LEAST_TOKENS", 1 << 40)
    # On two cores that others use too, two threads wait for each other 6 ms at each product.
    if "cotbert_core.encoder.threads" in sys.modules:
        monkeypatch.setattr("cotbert_core.encoder.threads.set_threads", lambda threads: None)
    # A drawing as SVG takes 45 ms; the bars of the lengths of a corpus 11 ms, 2 s in all.
    if "drawn" in marks or "pipelines.reports.plots" not in sys.modules:
        return
    for name in ("reports.plots", "reports.similarity_plot", "templates.token_map_plots"):
        if f"pipelines.{name}" in sys.modules:
            monkeypatch.setattr(f"pipelines.{name}.svg", lambda figure: "<svg></svg>")
    monkeypatch.setattr("pipelines.reports.plots.histogram", lambda *_, **__: "<svg></svg>")


@pytest.fixture(scope="session", autouse=True)
def checked_next_commands() -> Iterator[None]:
    """Each command that a job of this process suggests is one that cotbert takes."""
    from pipelines.cli import build_parser
    from pipelines.commands import COMMANDS
    from pipelines.options.declare import build
    from pipelines.runtime import ending

    shown = ending.typed

    def checked(words: Sequence[str | Path]) -> str:
        given = vars(build_parser().parse_args([str(word) for word in words]))
        build(COMMANDS[given["command_name"]].options, given | {"parse": None})
        return shown(words)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ending, "typed", checked)
        yield


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An MLflow database with its tables made, which takes seconds, and nothing in them. The
    workers of pytest-xdist make it once. MLflow does not look again and again whether its copies
    have all tables."""
    from filelock import FileLock
    from mlflow import MlflowClient
    from mlflow.store.db import utils

    base = tmp_path_factory.getbasetemp()
    # Beside the folders of the workers, which this run alone uses.
    path = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "empty-mlflow.db"
    with FileLock(f"{path}.lock"):
        if not path.exists():
            made = path.with_suffix(".unfinished")
            MlflowClient(tracking_uri=f"sqlite:///{made}").search_experiments()
            made.rename(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utils, "_verify_schema", lambda engine: None)
        yield path


@pytest.fixture
def own_store(empty_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The client of a store in tmp_path, which is the current folder and the default store's."""
    from mlflow import MlflowClient

    monkeypatch.delenv(MLFLOW_STORE, raising=False)
    monkeypatch.chdir(tmp_path)
    shutil.copy(empty_store, tmp_path / "mlflow.db")
    return MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")


@pytest.fixture
def written_states(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Note, in the list that is returned, the status of each result's run when it is written."""
    from pipelines.recording import mlflow_run

    def begin(store: Any, name: str = "mlflow_run_id") -> list[str]:
        states: list[str] = []
        write = mlflow_run.write_json

        def noted(path: Path, value: Any) -> None:
            states.append(store.get_run(value[name]).info.status)
            write(path, value)

        monkeypatch.setattr(mlflow_run, "write_json", noted)
        return states

    return begin


@pytest.fixture
def unrecorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job in this process without MLflow, which takes longer than most jobs here; the current
    folder is tmp_path."""
    from pipelines.recording import tracking

    run = tracking.Run(None, None)
    monkeypatch.setattr(tracking, "tracked_run", lambda *_, **__: nullcontext(run))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def only_server(
    tmp_path_factory: pytest.TempPathFactory, empty_store: Path
) -> Iterator[mlflow_server.Server]:
    """One MLflow server for a module; `server` starts it where a test has killed it."""
    folder = tmp_path_factory.mktemp("server")
    shutil.copy(empty_store, folder / "mlflow.db")
    server = mlflow_server.Server(folder)
    yield server
    server.kill()


@pytest.fixture
def server(
    only_server: mlflow_server.Server, monkeypatch: pytest.MonkeyPatch
) -> mlflow_server.Server:
    """The module's MLflow server, running, as this process's store."""
    monkeypatch.setenv(MLFLOW_STORE, only_server.uri)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    only_server.start()
    return only_server


@pytest.fixture
def server_client(server: mlflow_server.Server) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=server.uri)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, ray_here: None) -> Iterator[Path]:
    """A folder to work in, with Ray, a tracking store and a cache for the module."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        patch.setenv("COTBERT_CACHE", str(folder / "cache"))
        yield folder


@pytest.fixture
def without_ray(unrecorded: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """`prepare` and `embed` run in this process, as little input does, whatever their size and
    `workers`, and without MLflow."""
    from pipelines.embedding import embed
    from pipelines.preparing import prepare

    for job in (prepare, embed):
        monkeypatch.setattr(job, "ray_session", lambda *_: nullcontext())


@pytest.fixture
def made(tmp_path: Path, bert_folder: str) -> Any:
    """Prepare inputs into a new folder of tmp_path; its corpus."""
    from read_inputs import prepared

    return lambda *inputs, name="corpus", **options: prepared(
        tmp_path / name, bert_folder, *inputs, **options
    )


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Two Marian models of an invented language, there and back (10 s to train)."""
    import tiny_marian

    return tiny_marian.build(tmp_path_factory.mktemp("marian"))


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder, in tmp_path."""
    monkeypatch.setenv("COTBERT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def rates_corpus(tmp_path: Path, bert_folder: str) -> Path:
    """Forty-eight sentences, prepared."""
    subjects = ("A man", "Two dogs", "The children", "She", "Nobody", "A woman")
    ends = ("on the stage.", "in the green field", "while they watch the ice.", "after the answer.")
    texts = [f"{s} {v} {e}" for s in subjects for v in ("is singing", "walks") for e in ends]
    from tiny_corpus import write_corpus

    return Path(write_corpus(tmp_path / "corpus", bert_folder, texts, max_length=12))


@pytest.fixture
def rates(tmp_path: Path) -> Path:
    """A space of the user's."""
    path = tmp_path / "rates.yaml"
    path.write_text(RATES)
    return path
