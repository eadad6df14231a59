"""Where Ray's log lines go: warnings to the output folder, errors to the terminal as well."""

from __future__ import annotations

import io
import logging
import os
import sys

import pytest

from pipelines.runtime import ray_session
from pipelines.runtime.ray_log import LOG_FILE, LOGGERS, only_in_log, ray_log


@pytest.fixture
def terminal(monkeypatch):
    """What loggers show that have the levels and handlers of Ray's after a session has started."""
    shown = io.StringIO()
    for name in LOGGERS:
        logger, shows = logging.getLogger(name), name in ("ray", "ray.data")
        monkeypatch.setattr(logger, "level", logging.ERROR)
        monkeypatch.setattr(logger, "handlers", [logging.StreamHandler(shown)] if shows else [])
        monkeypatch.setattr(logger, "propagate", not shows)
    return shown


def state():
    loggers = [logging.getLogger(name) for name in LOGGERS]
    return [(o.level, o.propagate, [(h, h.level) for h in o.handlers]) for o in loggers]


def test_warnings_go_to_the_file_and_errors_to_the_terminal_too(terminal, tmp_path):
    before = state()
    with ray_log(tmp_path):
        logging.getLogger("ray.train.a").info("information")
        logging.getLogger("ray.data.a").warning("a warning of http://user:S3cret@host")
        logging.getLogger("ray.a").error("an error")
    assert state() == before
    logging.getLogger("ray.a").warning("too late")
    first, second = (tmp_path / LOG_FILE).read_text().splitlines()
    assert first.endswith("WARNING ray.data.a: a warning of http://***@host")
    assert second.endswith("ERROR ray.a: an error")
    assert terminal.getvalue() == "an error\n"


def test_a_log_can_be_kept_from_the_terminal(terminal, tmp_path):
    before = state()
    with only_in_log("ray.tune", tmp_path):
        logging.getLogger("ray.tune.a").error("a trial failed")
    assert state() == before
    assert (tmp_path / LOG_FILE).read_text().endswith("ERROR ray.tune.a: a trial failed\n")
    assert terminal.getvalue() == ""


def test_what_ray_writes_while_it_starts_goes_to_the_file(tmp_path, capfd):
    with ray_session._silence(tmp_path):
        os.write(2, b"\x1b[36ma line\x1b[0m of C++\x07 about http://user:S3cret@host\n")
    print("shown again", file=sys.stderr)
    assert (tmp_path / LOG_FILE).read_text() == "a line of C++\\u0007 about http://***@host\n"
    assert capfd.readouterr().err == "shown again\n"


def test_no_file_is_made_for_nothing_and_none_that_cannot_be_written_is_a_fault(terminal, tmp_path):
    for folder, lines in (
        (tmp_path, ("Progress bars disabled. To enable, set ...",
                    "logging.cc:303: Set ray log level from environment variable A to 3\n")),
        (tmp_path / "gone", ("a warning", "a line\n")),
    ):  # fmt: skip
        with ray_log(folder):
            logging.getLogger("ray.data.a").warning(lines[0])
        with ray_session._silence(folder):
            os.write(2, lines[1].encode())
    assert not list(tmp_path.iterdir())
    assert terminal.getvalue() == ""
