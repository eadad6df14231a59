"""What is submitted: a command that parses, absolute paths, code and no data."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from job_server import FakeServer, answers

from cluster import command_paths, jobs, log_stream, package
from cluster.command_paths import ENCODER_SETTINGS
from cluster.server import JobServer, NoAnswerError
from cotbert_core.errors import UserError
from cotbert_core.method_settings import METHOD_SETTINGS
from pipelines.cli import command_line, main
from pipelines.commands import COMMANDS
from pipelines.options.declare import declared

LINE = command_line()
TRAIN = ("train", "quickstart", "--corpus", "/corpus", "--output", "/out")


@pytest.fixture
def place(own_place):
    (own_place / "text.txt").write_text("A man\n")
    (own_place / "model").mkdir()
    return own_place


@pytest.mark.parametrize(
    "marked",  # `@` before what becomes absolute
    [
        "embed @model --input @text.txt --output @out",
        "embed bert-base-uncased --input @*.txt --output @out",
        "embed models:/a@b --input s3://b/x hf:a /x.txt --out @o",
        "embed @./new --input docstrings:numpy --output @../o",
        "search /v model --model @model --text @text.txt",
        "evaluate @model,readout=cls gpt --dev-pairs @p.tsv",
        "evaluate @model --whiten tasks",
        "evaluate @model --rank @text.txt",
        "evaluate @model --flow @text.txt",
        "evaluate @model --flow tasks",
        "train quickstart --corpus @text.txt --set encoder=@model --set seed=1 --output @o",
        "train rankcse-base --corpus @text.txt --set method.teacher=@model --output @o",
        "prepare --input sick:@model --encoder @model --output @o",
        "spaces @model",
        "recipes model",
    ],
)
def test_relative_paths_mean_this_folder(place, marked):
    def absolute(found):
        return os.path.normpath(place / found[1])

    path = r"(?<![a-z])@([^\s,]+)"
    command = re.sub(path, r"\1", marked)
    new, paths = command_paths.absolute(command.split(), LINE)
    assert new == re.sub(path, absolute, marked).split()
    assert {absolute(found) for found in re.finditer(path, marked)} <= set(paths)
    assert all(os.path.isabs(path) for path in paths)
    joined = command.replace(" --output ", " --output=").split()
    assert command_paths.absolute(joined, LINE)[0] == new


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("embed model --input none --output o", "input"),
        ("train quickstart --corpus none --output o", "corpus"),
        ("search none query", "embeddings"),
        ("prepare --input sick:none --encoder x --output o", "input"),
    ],
)
def test_an_input_that_is_not_here_is_refused(place, command, option):
    with pytest.raises(UserError, match=f"{option} 'none' is not in this folder"):
        command_paths.absolute(command.split(), LINE)


def test_every_setting_that_names_an_encoder_is_known():
    names = {f"method.{name}" for kind in METHOD_SETTINGS.values() for name in kind.encoders}
    assert {f"{name}=" for name in {"encoder", *names}} == set(ENCODER_SETTINGS)


def test_every_argument_that_may_be_a_path_is_known():
    """A text that is no path by its type is declared as one, or is plainly something else."""
    options = [one for command in COMMANDS.values() for one in declared(command.options)]
    texts = [one for one in options if one.kind is str and not one.choices]
    assert {one.name for one in texts if one.option.path == "input"} == {
        *("corpus", "embeddings", "exclude", "flow", "input", "inputs", "rank", "text", "whiten")
    }
    assert {one.name for one in texts if one.option.path == "name"} == {
        *("backward", "encoder", "first", "forward", "model", "models", "name", "second", "set"),
        "space",
    }
    others = {(one.name, one.option.metavar) for one in texts if not one.option.path}
    words = ("DIR", "FILE", "PATH", "FOLDER", "CORPUS", "MODEL")
    assert not {name for name, metavar in others if (metavar or name).upper().endswith(words)}


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("train nothing --corpus /c --output /o", "unknown recipe 'nothing'"),
        ("pretrain nothing --corpus /c --output /o", "unknown recipe 'nothing'"),
        ("train quickstart --corpus /c --output /o --set seed", "'seed' is not an assignment"),
        ("train quickstart --corpus /c --output /o --set method.heat=1", "'method.heat' is unkno"),
        ("tune nothing --corpus /c --output /o", "space"),
        ("cluster up", "'cluster' runs on this machine"),
        ("cotbert train", "begins with 'cotbert'"),
        ("quickstart", "quickstart has no --output"),
    ],
)
def test_a_typo_costs_nothing(own_place, capsys, command, text):
    """No request is made."""
    with pytest.raises(UserError, match=text):
        jobs.check(command.split(), LINE, JobServer("http://127.0.0.1:1"), None)


def test_a_word_that_no_command_knows_ends_as_always(own_place, capsys):
    for wrong in ("tran", "train quickstart --corpus c --output o --worker-count 2"):
        with pytest.raises(SystemExit, match="2"):
            main(["submit", "--address", "http://127.0.0.1:1", "--", *wrong.split()])
        assert "; see `cotbert" in capsys.readouterr().err
    for words, text in (("--status a -- recipes", "leave one out"), ("", "no command is given")):
        assert main(["submit", *words.split()]) == 2
        assert text in capsys.readouterr().err


def test_the_address_that_is_named_first_wins(own_place, monkeypatch):
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://there:8265")
    assert jobs.find_address(None) == "http://there:8265"
    assert jobs.find_address("http://here:1") == "http://here:1"


def test_the_code_travels_and_nothing_else(tmp_path):
    package.write_code(tmp_path)
    sent = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file())
    assert {path.parts[0] for path in sent} == set(package.PACKAGES)
    assert {path.suffix for path in sent} == {".py", ".tsv", ".typed"}
    data = (Path(command_paths.__file__).parents[1] / "pipelines" / "data").glob("*.tsv")
    assert {p.name for p in sent if p.suffix == ".tsv"} == {p.name for p in data}
    assert Path("pipelines/cli.py") in sent
    assert not any("__pycache__" in path.parts for path in sent)
    assert sum((tmp_path / path).stat().st_size for path in sent) < 5_000_000


def test_what_of_the_environment_is_passed_on(own_place):
    wanted = {"HF_TOKEN": "h", "AWS_ACCESS_KEY_ID": "a", "COTBERT_CACHE": "cache", "MY_KEY": "k"}
    wanted["MLFLOW_TRACKING_URI"] = "sqlite:///mlflow.db"
    others = {"AWS_PROFILE": "mine", "OPENAI_API_KEY": "", "PATH": "/bin"}
    passed = package.passed_variables(wanted | others, ("MY_KEY",))
    assert passed == wanted
    held = package.absolute_variables(passed)
    assert held["COTBERT_CACHE"] == str(own_place / "cache")
    assert held["MLFLOW_TRACKING_URI"] == f"sqlite:///{own_place}/mlflow.db"


def test_a_job_as_it_is_sent(place, monkeypatch):
    """To a cluster that grows, which is not asked for the cores of its 8 workers."""
    monkeypatch.setenv("HF_TOKEN", "secret")
    command = ["train", "quickstart", "--corpus", "text.txt", "--output", "o", "--workers", "8"]
    with FakeServer(answers(nodes=(1,))) as fake:
        job = jobs.check(command, LINE, JobServer(fake.url), "mine", ["A=b=c"], may_grow=True)
        unnamed = jobs.check(command, LINE, JobServer(fake.url), None, may_grow=True)
    assert (job.name, unnamed.name[:6]) == ("mine", "train-")
    assert job.words[3] == str(place / "text.txt")
    assert (job.variables["HF_TOKEN"], job.variables["A"]) == ("secret", "b=c")
    assert not any("secret" in note for note in job.notes)
    passed = "A, COTBERT_CACHE, COTBERT_MAY_GROW, HF_HUB_OFFLINE, HF_TOKEN"
    assert job.notes[0] == f"passed on: {passed}"
    assert job.notes[1] == f"all nodes must see {place}/text.txt, {place}/o, {place}/cache"
    assert job.notes[2].startswith("MLFLOW_TRACKING_URI is not set here")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"name": "a/b"}, "the job's name is 'a/b'"),
        ({"environment": ["1=2"]}, "--env is '1=2'"),
        ({"environment": ["NOT_SET_HERE"]}, "--env is NOT_SET_HERE, which is not set here"),
    ],
)
def test_names_that_are_none(own_place, options, text):
    with FakeServer(answers()) as fake, pytest.raises(UserError, match=text):
        jobs.check(TRAIN, LINE, JobServer(fake.url), **{"name": None, **options})


@pytest.mark.parametrize(
    ("job", "status", "text"),
    [
        ({"status": "SUCCEEDED", "driver_exit_code": 0}, 0, ""),
        ({"status": "FAILED", "driver_exit_code": 2, "message": "x\ncotbert: no"}, 2, "failed: no"),
        ({"status": "FAILED", "driver_exit_code": -9, "message": "killed"}, 1, "failed: killed"),
        ({"status": "FAILED", "message": None}, 1, "failed: see its log"),
        ({"status": "STOPPED", "driver_exit_code": None}, 1, "was stopped"),
    ],
)
def test_a_jobs_end_is_this_commands(job, status, text, capsys):
    assert log_stream.exit_status("mine", job) == status
    assert text in capsys.readouterr().err


class Broken:
    """Ray's client of a job whose output ends with an error, after which the job ends too."""

    def __init__(self, error, fake):
        self.error, self.fake = error, fake

    async def tail_job_logs(self, name):
        yield "half a line"
        ended = {"status": "FAILED", "message": "cotbert: late", "driver_exit_code": 2}
        self.fake.responses[f"/api/jobs/{name}"] = (200, ended)
        raise self.error


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (RuntimeError("gone"), 2, "can be shown (gone); waiting for its end"),
        (KeyboardInterrupt(), 130, "interrupted; the job continues: `cotbert submit --logs mine"),
    ],
)
def test_a_job_outlives_who_looks_at_it(own_place, monkeypatch, capsys, error, status, text):
    with FakeServer(answers(jobs={"mine": {"status": "RUNNING"}})) as fake:
        monkeypatch.setattr(JobServer, "client", lambda server: Broken(error, fake))
        try:
            ended = main(["submit", "--logs", "mine", "--address", fake.url])
        except SystemExit as stop:
            ended = stop.code
    captured = capsys.readouterr()
    assert (ended, captured.out) == (status, "half a line")
    assert text in captured.err


def test_a_lost_connection_to_a_running_job_is_tried_again(monkeypatch, capsys):
    """As when `kubectl port-forward` is started again."""
    running, lost = {"status": "RUNNING"}, NoAnswerError("no Ray job server answers")
    answers = iter([running, lost, running, lost, lost, {"status": "SUCCEEDED"}, running, lost])

    def known_job(name):
        answer = next(answers, lost)
        if answer is lost:
            raise lost
        return answer

    def client():
        raise ConnectionError("reset")

    server = SimpleNamespace(address="http://there", known_job=known_job, client=client)
    monkeypatch.setattr(log_stream, "POLL_SECONDS", 0.0)
    assert log_stream.follow("mine", server) == 0
    assert "no more output of mine can be shown (reset); waiting" in capsys.readouterr().err
    monkeypatch.setattr(log_stream, "LOST_SECONDS", 0.0)
    assert log_stream.follow("mine", server) == 1
    message = capsys.readouterr().err
    assert "; the job mine continues: `cotbert submit --logs mine --address http://the" in message
