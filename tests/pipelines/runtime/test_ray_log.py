"""Where Ray's log lines go: warnings to the output folder, errors to the terminal as well."""

from __future__ import annotations

import logging
import os
import sys

import pytest

from pipelines.runtime import ray_session
from pipelines.runtime.ray_log import LOG_FILE, only_in_log, ray_log


@pytest.fixture
def loggers(capsys, monkeypatch):
    """Ray's own handlers and levels, as after a session."""
    import ray.data  # noqa: F401

    names = ("ray", "ray.data", "ray.tune")
    for name in names:
        monkeypatch.setattr(logging.getLogger(name), "level", logging.ERROR)
    for handler in [h for name in names for h in logging.getLogger(name).handlers]:
        if isinstance(handler, logging.StreamHandler):  # as Ray is imported with this stream
            monkeypatch.setattr(handler, "stream", sys.stderr)
    return names


def state(names):
    there = [logging.getLogger(name) for name in names]
    return [(o.level, o.propagate, [(h, h.level) for h in o.handlers]) for o in there]


def test_warnings_go_to_the_file_and_errors_to_the_terminal_too(loggers, tmp_path, capsys):
    before = state(loggers)
    with ray_log(tmp_path):
        logging.getLogger("ray.train.a").info("information")
        logging.getLogger("ray.data.a").warning("a warning of http://user:S3cret@host")
        logging.getLogger("ray.a").error("an error")
    logging.getLogger("ray.a").warning("too late")
    first, second = (tmp_path / LOG_FILE).read_text().splitlines()
    assert first.endswith("WARNING ray.data.a: a warning of http://***@host")
    assert second.endswith("ERROR ray.a: an error")
    assert capsys.readouterr().err.splitlines()[0].endswith("-- an error")
    assert state(loggers) == before


def test_a_log_can_be_kept_from_the_terminal(loggers, tmp_path, capsys):
    before = state(loggers)
    with only_in_log("ray.tune", tmp_path):
        logging.getLogger("ray.tune.a").error("a trial failed")
    assert (tmp_path / LOG_FILE).read_text().endswith("ERROR ray.tune.a: a trial failed\n")
    assert capsys.readouterr().err == ""
    assert state(loggers) == before


def test_no_file_is_made_for_nothing(loggers, tmp_path):
    with ray_log(tmp_path):
        logging.getLogger("ray.data.a").warning("Progress bars disabled. To enable, set ...")
    with ray_session._silence(tmp_path):
        os.write(2, b"logging.cc:303: Set ray log level from environment variable A to 3\n")
    assert not list(tmp_path.iterdir())


def test_what_ray_writes_while_it_starts_goes_to_the_file(tmp_path, capfd):
    with ray_session._silence(tmp_path):
        os.write(2, b"a line of C++ about http://user:S3cret@host\n")
    print("shown again", file=sys.stderr)
    assert (tmp_path / LOG_FILE).read_text() == "a line of C++ about http://***@host\n"
    assert capfd.readouterr().err == "shown again\n"


def test_a_log_that_cannot_be_written_is_no_fault(loggers, tmp_path, capsys):
    with ray_log(tmp_path / "gone"):
        logging.getLogger("ray.a").warning("a warning")
    with ray_session._silence(tmp_path / "gone"):
        os.write(2, b"a line\n")
    assert capsys.readouterr().err == ""
