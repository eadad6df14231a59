"""The last lines of a job: short paths, and commands that can be typed as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pipelines.commands.printing import INTERNAL, print_facts
from pipelines.runtime.ending import free_folder, print_ending, shown_path, typed
from pipelines.runtime.progress import set_output


def test_a_job_names_its_result_folder_report_and_next_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    output = tmp_path / "runs" / "my corpus"
    output.mkdir(parents=True)
    print_ending("7 rows.", output, ("search", output, "a query"))
    *lines, last = capsys.readouterr().out.splitlines()
    assert lines == ["", "7 rows.", "  folder  runs/my corpus"]
    assert last.startswith("  next    ")
    assert last.endswith("cotbert search 'runs/my corpus' 'a query'")
    (output / "report.html").write_text("<p>")
    print_ending("7 rows.", output)
    assert capsys.readouterr().out.splitlines()[3:] == ["  report  runs/my corpus/report.html"]
    assert shown_path(Path("../there")) == tmp_path.parent / "there", "paths elsewhere are whole"


def test_the_output_of_a_next_command_is_new(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert free_folder("runs/vectors") == "runs/vectors"
    for taken, free in (("vectors", "vectors-2"), ("vectors-2.partial", "vectors-3")):
        Path("runs", taken).mkdir(parents=True)
        assert free_folder("runs/vectors") == f"runs/{free}"


def test_a_program_that_is_not_on_the_path_is_named_by_its_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.chdir(tmp_path)
    command = typed(("--version",))
    assert command == f"{Path(sys.executable).parent}/cotbert --version"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.count(".")) == (0, 2)


def test_internal_facts_are_shown_on_request(capsys):
    result = {"rows": 3, **dict.fromkeys(INTERNAL, 1)}
    print_facts(result)
    assert capsys.readouterr().out == "rows  3\n"
    set_output(verbose=True)
    print_facts(result)
    assert len(capsys.readouterr().out.splitlines()) == len(result)


def test_a_command_shows_no_credentials_of_an_address():
    words = ("search", "vectors", "--text", "s3://KEY:S3cret@bucket/a.parquet")
    assert typed(words).endswith("search vectors --text 's3://***@bucket/a.parquet'")
