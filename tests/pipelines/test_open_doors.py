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
from collections.abc import Callable
from pathlib import Path

import pytest
from file_modes import check_modes, note_modes
from forked import COTBERT, FORKS, know_parents
from listening import Listener, listeners
from tiny_corpus import write_corpus
from trainings import SENTENCES, training
from waiting import until

import pipelines
from pipelines.runtime import processes

pytestmark = [pytest.mark.ray_local, pytest.mark.real, pytest.mark.timeout(600)]

MARK = "COTBERT_TEST_DOORS"
SETTINGS = ("batch_size=8", "max_steps=2", "eval_every=2", "precision=fp32", "max_length=12")
SETTINGS += ("workers=2",)
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


class Place:
    """A home, a working folder and Ray's temporary folder of a test's own."""

    def __init__(self, root: Path, temporary: Path, mark: str) -> None:
        self.root, self.temporary, self.mark = root, temporary, mark
        self.seen: set[Listener] = set()
        self.modes: dict[Path, int] = {}

    def start(self, *command: str) -> subprocess.Popen[str]:
        others = ("RAY_", "COTBERT_")
        own = {k: v for k, v in os.environ.items() if k == FORKS or not k.startswith(others)}
        own |= {"HOME": str(self.root / "home"), "TMPDIR": str(self.temporary)}
        own |= {MARK: self.mark, "MLFLOW_TRACKING_URI": ""}
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        popen = {"cwd": self.root, "env": own, "umask": 0o022, "start_new_session": True}
        return subprocess.Popen(command, **streams, **popen)

    def processes(self) -> set[int]:
        return processes.find_marked(self.mark, MARK)

    def run(self, *command: str) -> None:
        """Note sockets and files until the command has ended well; of files that go, the widest
        modes."""
        job, ended = self.start(*command), False
        while not ended:
            ended = job.poll() is not None
            self.seen.update(listeners(self.processes()))
            for folder in (self.root, self.temporary):
                note_modes(self.modes, folder)
            time.sleep(0.25)
        output = job.communicate()[0]
        assert job.returncode == 0, output

    def wait_for(self, job, begun: Callable[[], object]) -> None:
        while not begun():
            assert job.poll() is None, job.communicate()[0]
            time.sleep(0.1)

    def wait_until_none(self) -> None:
        """No process of a command is left, or only for the seconds that Ray's reaper takes."""
        until(lambda: not self.processes(), 15)


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
    processes.kill(made.processes())
    shutil.rmtree(temporary, ignore_errors=True)


def test_commands_on_a_ray_of_their_own(place, bert_folder):
    """One Ray serves prepare, train, tune and embed; the workers of the trainings are two. Only
    loopback is listened at, and one file alone holds the token, for its owner alone. Folders of the
    user that are named as this project's packages are not imported."""
    for name in ("cluster", "cotbert_core", "pipelines", "tune_spaces"):
        (place.root / name).mkdir()
        (place.root / name / "__init__.py").write_text("raise ImportError('a folder of the user')")
    (place.root / "sentences.txt").write_text("\n".join(SENTENCES), encoding="utf-8")
    (place.root / "rates.yaml").write_text(RATES)
    commands = [
        ["prepare", "--input", "sentences.txt", "--output", "corpus", "--max-length", "12"],
        training(bert_folder, "corpus", "run", *SETTINGS),
        training(bert_folder, "corpus", "sweep", *SETTINGS, job=("tune", "./rates.yaml")),
        ["embed", "run/model", "--input", "sentences.txt", "--output", "vectors"],
    ]
    commands[0] += ["--encoder", bert_folder]
    commands[3] += ["--precision", "fp32"]
    place.run(sys.executable, "-P", "-c", IN_ONE_RAY, json.dumps(commands))
    assert any(one.title.startswith("raylet") for one in place.seen)
    # Of each worker: its core worker's, gloo's, and of the first torch's store.
    workers = {one.port for one in place.seen if one.title.startswith("ray::RayTrainWorker")}
    assert len(workers) >= 5
    assert [one for one in sorted(place.seen, key=str) if not one.on_loopback] == []
    check_modes(place.modes, place.root / "home" / ".ray" / "auth_token")
    place.wait_until_none()


def test_nothing_else_starts_a_ray():
    """A `ray.init` elsewhere would make a token, and listen, in its own way."""
    home = Path(pipelines.__file__).parents[1]
    files = [p for room in ("pipelines", "cluster") for p in (home / room).rglob("*.py")]
    assert len(files) > 100
    starts = {
        path.relative_to(home).as_posix()
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "ray.init"
    }
    assert starts == {"pipelines/runtime/ray_session.py"}


def test_sigterm_ends_a_training_in_plain_words(place, bert_folder):
    write_corpus(place.root / "corpus", bert_folder, SENTENCES, max_length=12)
    words = training(bert_folder, "corpus", "run", *SETTINGS, "max_steps=100000")
    job = place.start(COTBERT, *words)
    place.wait_for(job, (place.root / "run" / "metrics.jsonl").is_file)
    job.send_signal(signal.SIGTERM)
    output = job.communicate(timeout=400)[0]
    place.wait_until_none()
    assert output.splitlines()[-1] == (
        "cotbert: stopped by SIGTERM; give the same command again to continue"
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
    place.wait_for(job, lambda: processes.filter_by_title(place.processes(), "ray::"))
    for _ in range(2):
        os.killpg(job.pid, signal.SIGHUP)
    output = job.communicate(timeout=400)[0]
    place.wait_until_none()
    assert "cotbert: stopped by SIGHUP; " in output.splitlines()[-1]
    assert job.returncode == 128 + signal.SIGHUP
