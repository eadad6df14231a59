"""What commands leave open on this machine: sockets that listen, and files that others can read."""

from __future__ import annotations

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from file_modes import check_modes, note_modes
from forked import FORKS, know_parents
from listening import Listener, listeners
from tiny_corpus import write_corpus

import pipelines
from pipelines.runtime import processes

pytestmark = [pytest.mark.ray_local, pytest.mark.real, pytest.mark.timeout(600)]

MARK = "COTBERT_TEST_DOORS"
COTBERT = str(Path(sys.executable).with_name("cotbert"))
SETTINGS = ("batch_size=8", "max_steps=2", "eval_every=2", "precision=fp32", "max_length=12")
SETS = [word for item in (*SETTINGS, "workers=2") for word in ("--set", item)]
RATES = """
name: rates
purpose: Two learning rates.
recipe: quickstart
settings:
  optimizer.learning_rate: {grid: [1.0e-3]}
"""
# All commands of a Ray in one process: the session of the first serves the others.
IN_ONE_RAY = """
import json, sys
from pipelines.cli import main
from pipelines.runtime.ray_session import ray_session
with ray_session():
    for command in json.loads(sys.argv[1]):
        assert main(command) == 0, command
"""


@dataclass
class Place:
    """A home, a working folder and Ray's temporary folder of a test's own."""

    root: Path
    temporary: Path
    mark: str
    seen: set[Listener] = field(default_factory=set)
    modes: dict[Path, int] = field(default_factory=dict)

    @property
    def variables(self) -> dict[str, str]:
        others = ("RAY_", "COTBERT_")
        own = {k: v for k, v in os.environ.items() if k == FORKS or not k.startswith(others)}
        folders = {"HOME": str(self.root / "home"), "TMPDIR": str(self.temporary)}
        return {**own, **folders, MARK: self.mark, "MLFLOW_TRACKING_URI": ""}

    def start(self, *command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            cwd=self.root,
            env=self.variables,
            umask=0o022,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def processes(self) -> set[int]:
        return processes.find_marked(self.mark, MARK)

    def look(self) -> None:
        """Note the sockets and files of this moment: of files that go, the widest modes."""
        self.seen.update(listeners(self.processes()))
        for folder in (self.root, self.temporary):
            note_modes(self.modes, folder)

    def run(self, *command: str) -> str:
        """Look for sockets until the command has ended well; what it printed."""
        job = self.start(*command)
        while job.poll() is None:
            self.look()
            time.sleep(0.25)
        self.look()
        output = job.communicate()[0]
        assert job.returncode == 0, output
        return output


@pytest.fixture
def place(tmp_path, request, monkeypatch):
    know_parents(monkeypatch)
    (tmp_path / "home").mkdir()
    # Ray's sockets lie below it, and Linux allows 107 characters for them: a short name.
    temporary = Path(tempfile.mkdtemp(prefix="", dir="/tmp"))
    for folder in (tmp_path, temporary):  # as /tmp and a home that others may enter
        folder.chmod(0o755)
    made = Place(tmp_path, temporary, f"{request.node.name}-{os.getpid()}")
    yield made
    processes._signal(made.processes(), signal.SIGKILL)
    shutil.rmtree(temporary, ignore_errors=True)


@pytest.fixture
def text(place):
    subjects = ("A man", "Two dogs", "The children", "She", "Nobody", "A woman")
    ends = ("on the stage.", "in the green field", "while they watch the ice.", "after the answer.")
    lines = [f"{s} {v} {e}" for s in subjects for v in ("is singing", "walks") for e in ends]
    (place.root / "sentences.txt").write_text("\n".join(lines), encoding="utf-8")
    (place.root / "rates.yaml").write_text(RATES)
    return "sentences.txt"


def check_open_doors(place: Place) -> None:
    """Only loopback is listened at, and one file alone holds the token, for its owner alone."""
    assert place.seen
    assert [one for one in sorted(place.seen, key=str) if not one.on_loopback] == []
    check_modes(place.modes, place.root / "home" / ".ray" / "auth_token")


def test_commands_on_a_ray_of_their_own(place, text, bert_folder):
    """One Ray serves prepare, train, tune and embed; the workers of the trainings are two."""
    encoder = ["--encoder", bert_folder]
    corpus = ["--corpus", "corpus"]
    commands = [
        ["prepare", "--input", text, "--output", "corpus", *encoder, "--max-length", "12"],
        ["train", "quickstart", *corpus, "--output", "run", *encoder, *SETS],
        ["tune", "./rates.yaml", *corpus, "--output", "sweep", *encoder, *SETS],
        ["embed", "run/model", "--input", text, "--output", "vectors", "--precision", "fp32"],
    ]
    place.run(sys.executable, "-c", IN_ONE_RAY, json.dumps(commands))
    titles = {one.title for one in place.seen}
    assert any(title.startswith("raylet") for title in titles)
    # Of each worker: its core worker's, gloo's, and of the first torch's store.
    workers = {(o.port) for o in place.seen if o.title.startswith("ray::RayTrainWorker")}
    assert len(workers) >= 5
    check_open_doors(place)
    wait_until_none(place)


def test_nothing_else_starts_a_ray():
    """A `ray.init` elsewhere would make a token, and listen, in its own way."""
    home = Path(pipelines.__file__).parent
    files = [p for room in ("pipelines", "cluster") for p in (home.parent / room).rglob("*.py")]
    starts = {
        path.relative_to(home.parent).as_posix()
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "ray.init"
    }
    assert starts == {"pipelines/runtime/ray_session.py"}
    assert len(files) > 100


def wait_for(place: Place, job, *titles: str) -> None:
    while not processes.filter_by_title(place.processes(), *titles):
        assert job.poll() is None, job.communicate()[0]
        time.sleep(0.1)


def wait_for_end(place: Place, job) -> str:
    """What a command printed; all that it started ends within seconds of it."""
    output = job.communicate(timeout=400)[0]
    wait_until_none(place)
    return output


def wait_until_none(place: Place) -> None:
    """No process of a command is left, or only for the seconds that Ray's reaper takes."""
    limit = time.monotonic() + 15
    while left := place.processes():
        assert time.monotonic() < limit, left
        time.sleep(0.1)


def test_sigterm_ends_a_training_in_plain_words(place, text, bert_folder):
    sets = [*SETS, "--set", "max_steps=100000"]
    texts = (place.root / text).read_text().splitlines()
    corpus = str(write_corpus(place.root / "corpus", bert_folder, texts, max_length=12))
    command = ["train", "quickstart", "--corpus", corpus, "--output", "run"]
    command += ["--encoder", bert_folder]
    job = place.start(COTBERT, *command, *sets)
    wait_for(place, job, "ray::RayTrainWorker.run_train_fn")
    job.send_signal(signal.SIGTERM)
    output = wait_for_end(place, job)
    assert output.splitlines()[-1] == (
        "cotbert: stopped by SIGTERM; give the same command with --resume to continue"
    )
    assert job.returncode == 128 + signal.SIGTERM
    assert "***" not in output


def test_sighup_ends_an_embedding_in_plain_words(place, bert_folder, monkeypatch):
    """As a closed terminal does: to all processes of the session, and twice."""
    monkeypatch.delenv(FORKS)  # what is forked is of another session
    # Distinct texts, since equal ones are embedded once: the job must not end before the signal is
    # heard, which takes up to 30 s.
    lines = (f"A man is singing song {number}.\n" for number in range(1_000_000))
    (place.root / "long.txt").write_text("".join(lines), encoding="utf-8")
    command = ["embed", bert_folder, "--input", "long.txt", "--output", "vectors"]
    heard = ("env", "--default-signal=HUP")  # tests run under nohup ignore it, and so would the job
    job = place.start(*heard, COTBERT, *command, "--precision", "fp32")
    wait_for(place, job, "ray::")
    for _ in range(2):
        os.killpg(job.pid, signal.SIGHUP)
    output = wait_for_end(place, job)
    assert "cotbert: stopped by SIGHUP; " in output.splitlines()[-1]
    assert job.returncode == 128 + signal.SIGHUP
