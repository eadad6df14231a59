"""What is submitted: a command that parses, its folder, code and no data."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from job_server import FakeServer, answers

from cluster import jobs, log_stream, package
from cluster.server import JobServer, NoAnswerError
from cotbert_core.errors import UserError
from pipelines.cli import _given as parse
from pipelines.cli import main
from pipelines.commands.submit import Submit
from pipelines.options.declare import declared
from pipelines.recording.tracking import COMMIT, commit
from pipelines.runtime.training_capacity import MAY_GROW
from pipelines.storage.paths import SUBMITTED_FROM

TRAIN = ("train", "quickstart", "--corpus", "/corpus", "--output", "/out")


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("cluster up", "'cluster' runs on this machine"),
        ("cotbert train", "begins with 'cotbert'"),
        ("quickstart", "quickstart has no --output"),
    ],
)
def test_a_typo_costs_nothing(own_place, command, text):
    """No request is made."""
    with pytest.raises(UserError, match=text):
        jobs.check(command.split(), parse, JobServer("http://127.0.0.1:1"), None)


def test_a_job_works_in_the_folder_of_its_submission(own_place, monkeypatch, capsys):
    """A folder that this machine cannot make is needed only for relative paths."""
    folder = own_place / "home" / "mine"
    monkeypatch.setenv(SUBMITTED_FROM, str(folder))
    assert main(["prepare", "--input", "t", "--encoder", "e", "--output", "o"]) == 2
    assert Path.cwd() == folder
    assert "'t' does not exist" in capsys.readouterr().err
    words = ["prepare", "--input", "t", "--encoder", "e", "--output"]
    absolute = str(folder / "o")
    for output, text in (("o", "'o' is relative to '/proc/mine', where"), (absolute, "'t' does")):
        monkeypatch.setenv(SUBMITTED_FROM, "/proc/mine")
        assert main([*words, output]) == 2
        assert text in capsys.readouterr().err
        assert Path.cwd() == folder
    monkeypatch.setenv(SUBMITTED_FROM, "/proc/mine")
    assert main(["evaluate", "e", "--report", str(folder / "a.md"), "--report", "b.md"]) == 2
    assert "'b.md' is relative to '/proc/mine'" in capsys.readouterr().err


def test_a_word_that_no_command_knows_ends_as_always(own_place, capsys):
    for wrong in ("tran", "train quickstart --corpus c --output o --worker-count 2"):
        with pytest.raises(SystemExit, match="2"):
            main(["submit", "--address", "http://127.0.0.1:1", "--", *wrong.split()])
        assert "; see `cotbert" in capsys.readouterr().err
    for words, text in (
        ("--status a -- recipes", "leave one out"),
        ("--logs a --no-wait", "--no-wait are for a new job"),
        ("", "no command is given"),
    ):
        assert main(["submit", *words.split()]) == 2
        assert text in capsys.readouterr().err


def test_the_address_that_is_named_first_wins(own_place, monkeypatch):
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://there:8265")
    assert jobs.find_address(None) == "http://there:8265"
    assert jobs.find_address("http://here:1") == "http://here:1"


def test_an_address_that_is_none_is_named_by_where_it_was_given(own_place, monkeypatch, capsys):
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "nonsense")
    assert main(["submit", "--", "recipes"]) == 2
    assert "RAY_API_SERVER_ADDRESS is 'nonsense': give the job" in capsys.readouterr().err
    assert main(["submit", "--address", "here:1", "--", "recipes"]) == 2
    assert "cotbert: address is 'here:1': give the job" in capsys.readouterr().err


def test_the_code_travels_and_nothing_else(tmp_path):
    package.write_code(tmp_path)
    sent = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file())
    assert {path.parts[0] for path in sent} == set(package.PACKAGES)
    assert {path.suffix for path in sent} == {".py", ".tsv", ".typed"}
    data = (Path(package.__file__).parents[1] / "pipelines" / "data").glob("*.tsv")
    assert {p.name for p in sent if p.suffix == ".tsv"} == {p.name for p in data}
    assert Path("pipelines/cli.py") in sent
    assert not any("__pycache__" in path.parts for path in sent)
    assert sum((tmp_path / path).stat().st_size for path in sent) < 5_000_000


def test_what_of_the_environment_is_passed_on(own_place):
    wanted = {"HF_TOKEN": "h", "AWS_ACCESS_KEY_ID": "a", "COTBERT_CACHE": "cache", "MY_KEY": "k"}
    wanted["MLFLOW_TRACKING_URI"] = wanted["MLFLOW_REGISTRY_URI"] = "sqlite:///mlflow.db"
    wanted["MLFLOW_TRACKING_INSECURE_TLS"] = "true"
    others = {"AWS_PROFILE": "mine", "OPENAI_API_KEY": "", "PATH": "/bin"}
    others["MLFLOW_TRACKING_SERVER_CERT_PATH"] = "mine.pem"
    passed = package.passed_variables(wanted | others, ("MY_KEY",))
    assert passed == wanted
    (env,) = (option for option in declared(Submit) if option.name == "env")
    for name in (*package.PASSED, *package.PASSED_PREFIXES):
        assert name in env.help
    held = package.absolute_variables(passed)
    assert held["COTBERT_CACHE"] == str(own_place / "cache")
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI"):
        assert held[name] == f"sqlite:///{own_place}/mlflow.db"


def test_an_empty_variable_is_not_the_current_folder():
    empty = {"COTBERT_CACHE": "", "MLFLOW_TRACKING_URI": ""}
    assert package.absolute_variables(empty) == empty


def test_a_job_as_it_is_sent(own_place, monkeypatch):
    """To a cluster that grows."""
    monkeypatch.setenv("HF_TOKEN", "secret")
    here = commit()
    with FakeServer(answers()) as fake:
        job = jobs.check(TRAIN, parse, JobServer(fake.url), "mine", ["A=b=c"], may_grow=True)
        unnamed = jobs.check(TRAIN, parse, JobServer(fake.url), None)
        sent = []
        client = SimpleNamespace(submit_job=lambda **job: sent.append(job))
        jobs.submit(job, SimpleNamespace(client=lambda: client))
    assert (job.name, unnamed.name[:6]) == ("mine", "train-")
    assert sent[0]["entrypoint"] == " ".join(("python -m pipelines.cli", *TRAIN))
    variables = sent[0]["runtime_env"]["env_vars"]
    assert (variables["HF_TOKEN"], variables["A"]) == ("secret", "b=c")
    assert variables[SUBMITTED_FROM] == str(own_place)
    monkeypatch.setenv(COMMIT, "abc")
    assert commit() == "abc" != variables[COMMIT] == here
    assert variables[MAY_GROW] == "1"
    assert MAY_GROW not in unnamed.variables
    assert not any("secret" in note for note in job.notes)
    passed = "A, COTBERT_CACHE, COTBERT_MAY_GROW, HF_HUB_OFFLINE, HF_TOKEN"
    assert job.notes[0] == f"passed on: {passed}"
    assert job.notes[1].endswith(f"relative ones mean {own_place}")
    assert job.notes[2].startswith("MLFLOW_TRACKING_URI is not set here")


def test_the_local_cluster_s_store_is_not_said_to_be_passed_on(own_place, monkeypatch):
    with FakeServer(answers()) as fake:
        local = SimpleNamespace(address=fake.url)
        monkeypatch.setattr(jobs, "running", lambda: local)
        job = jobs.check(TRAIN, parse, JobServer(fake.url), None)
    store = f"sqlite:///{own_place}/mlflow.db"
    assert job.variables["MLFLOW_TRACKING_URI"] == store
    passed, unset = job.notes
    assert "MLFLOW" not in passed
    assert unset == f"MLFLOW_TRACKING_URI is not set here: the run is in {store}"


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
        jobs.check(TRAIN, parse, JobServer(fake.url), **{"name": None, **options})


@pytest.mark.parametrize(
    ("job", "status", "text"),
    [
        ({"status": "SUCCEEDED", "driver_exit_code": 0}, 0, ""),
        ({"status": "FAILED", "driver_exit_code": 2, "message": "x\ncotbert: no"}, 2, "failed: no"),
        (
            {"status": "FAILED", "driver_exit_code": -9, "message": "8"},
            1,
            "signal 9 (Killed), perh",
        ),
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
        (KeyboardInterrupt(), 130, "interrupted; the job continues: `"),
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
    assert "whether the job mine continues is not known: once the server answers, `" in message
    assert "cotbert submit --status mine --address http://there` tells" in message
