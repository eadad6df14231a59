"""Completion in a real shell, and --quiet."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from pipelines.cli import main
from pipelines.commands import COMMANDS
from pipelines.options.completion import SHELLS
from pipelines.runtime.progress import Progress, say, set_output

ASK = "source {}; COMP_WORDS=({}); COMP_CWORD={}; _shtab_cotbert; echo ${{COMPREPLY[@]}}"


def script(shell, capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--print-completion", shell])
    return capsys.readouterr().out


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_commands_options_names_and_files(tmp_path, capsys):
    file = tmp_path / "cotbert.bash"
    file.write_text(script("bash", capsys))
    expected = {
        "tr": {"train", "track-sync"},
        "train simcse-sup": {"simcse-supervised"},
        "train simcse-base --keep-check": {"--keep-checkpoints"},
        "train simcse-base --keep-checkpoints b": {"best"},
        "tune temp": {"temperature", "temperature-grid", "templates"},
        "recipes simcse-sup": {"simcse-supervised"},
        "spaces temp": {"temperature", "temperature-grid", "templates"},
        "train simcse-base --corpus /et": {"/etc"},
    }
    for words, completions in expected.items():
        asked = ASK.format(file, f"cotbert {words}", len(words.split()))
        done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)
        assert set(done.stdout.split()) == completions, words


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_a_script_with_every_command(shell, capsys):
    shown = script(shell, capsys)
    assert all(name in shown for name in COMMANDS)


def test_quiet_leaves_warnings_and_errors(capsys):
    set_output(quiet=True)
    say("note: nothing to see")
    say("warning: 3 rows are lost")
    say("cotbert: the job failed")
    Progress("embed", 10, "rows").show(10)
    set_output()
    assert capsys.readouterr().err.splitlines() == [
        "warning: 3 rows are lost",
        "cotbert: the job failed",
    ]
    say("note: nothing to see")
    assert capsys.readouterr().err == "note: nothing to see\n"


@pytest.mark.parametrize("word", ["-q", "--quiet"])
def test_the_result_is_shown_also_when_quiet(word, capsys):
    assert main(["templates", word]) == 0
    assert "cot-bert" in capsys.readouterr().out
    assert main(["recipes", word, "no-such"]) == 2
    assert "unknown recipe 'no-such'" in capsys.readouterr().err
    say("shown again after a command without it" if main(["templates"]) == 0 else "")
    assert "shown again" in capsys.readouterr().err
