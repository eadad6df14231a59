"""The help of every command: each option explained once, with its unit and default."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import pytest

from cotbert_core.errors import UserError
from cotbert_core.readouts.options import FeatureOptions
from pipelines.augmenting.options import AugmentOptions
from pipelines.cli import COMMANDS, build_parser, main
from pipelines.evaluating.options import EvaluateOptions
from pipelines.options.declare import (
    GENERAL,
    Declared,
    Option,
    build,
    declared,
)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_page_holds_every_option_under_a_title(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "2000")
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    page = " ".join(capsys.readouterr().out.split())
    assert page.startswith(f"usage: cotbert {command}")
    options = [*declared(COMMANDS[command].options)]
    assert len({one.name for one in options}) == len(options)
    for one in options:
        assert one.help in page
        assert f" {one.option.group}: " in page or one.option.positional
    assert "positional arguments" not in page
    assert f" {GENERAL}: " in page


@pytest.mark.parametrize("command", COMMANDS)
def test_the_page_ends_with_a_command_line_that_is_right(command, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    _, example = capsys.readouterr().out.split("\nexample:\n")
    assert max(map(len, example.splitlines())) < 80
    words = shlex.split(example.replace("\\\n", " "))
    parsed = build_parser().parse_args
    assert words[:2] == ["cotbert", command]
    build(COMMANDS[command].options, {"parse": None, **vars(parsed(words[1:]))})
    if "--" in words:
        parsed(words[words.index("--") + 1 :])


def test_the_page_of_commands_names_each_of_them():
    page = (Path(__file__).parents[3] / "docs" / "commands.md").read_text(encoding="utf-8")
    rows = "\n".join(re.findall(r"^\| (.*?) \| ", page, re.MULTILINE))
    named = re.findall(r"`(?:cotbert )?([a-z-]+)", rows)
    assert set(named) == set(COMMANDS)


def test_an_empty_text_is_taken_where_the_help_explains_it():
    explained = {one.name for one in declared(AugmentOptions) if "''" in one.help}
    assert explained == {"forward-prefix", "backward-prefix"}
    words = ["augment", "--corpus", "a", "--output", "b", "--method", "back-translation"]
    parsed = build_parser().parse_args([*words, *(f"--{name}=" for name in explained)])
    assert (parsed.forward_prefix, parsed.backward_prefix) == ("", "")


def test_defaults_in_words_are_those_of_the_code():
    shown = {one.name: one.option.default for one in declared(EvaluateOptions)}
    assert shown["frequent-count"] == f"{FeatureOptions().frequent_count} tokens"
    assert shown["top-k"] == f"{FeatureOptions().top_k} tokens"


def test_numbers_have_commas_and_no_needless_fraction():
    shown = {
        (int, 100_000, "rows"): "100,000 rows",
        (int, 1, "rows"): "1 row",
        (float, 2.0, "times"): "2 times",
        (float, 6e-5, ""): "6e-05",
        (int, 8000, ""): "8000",
        (str, "text", ""): "text",
    }
    for (kind, default, unit), text in shown.items():
        one = Declared("n", Option("take", "N", unit=unit), kind, False, (), default)
        assert one.help == f"take (default: {text})"


def test_a_tilde_that_the_shell_left_is_the_users_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    words = ["train", "cot-bert-base", "--corpus", "c.txt", "--output=~/runs/mine"]
    assert build_parser().parse_args(words).output == Path("/home/me/runs/mine")


def test_an_old_name_still_works_and_warns(capsys):
    words = ["tune", "temperature", "--corpus", "c", "--output", "o", "--draw-seed", "7"]
    assert build_parser().parse_args(words).draw_seed == 7
    assert capsys.readouterr().err == "warning: --draw-seed is now called --sampling-seed\n"
    with pytest.raises(SystemExit, match="0"):
        main(["tune", "--help"])
    assert "--draw-seed" not in capsys.readouterr().out


def test_an_option_that_is_no_longer_needed_warns_and_is_not_shown(capsys):
    words = ["train", "quickstart", "--corpus", "c", "--output", "o", "--resume"]
    assert "resume" not in vars(build_parser().parse_args(words))
    assert capsys.readouterr().err == (
        "warning: --resume is no longer needed: the same command continues an interrupted job\n"
    )
    with pytest.raises(SystemExit, match="0"):
        main(["train", "--help"])
    assert "--resume" not in capsys.readouterr().out


def words(text):
    return tuple(text.split())


@dataclass(frozen=True)
class Hot:
    name: ClassVar[str] = "hot"
    degrees: float = Option("heat to this", "X", unit="degrees").field(90.0)


@dataclass(frozen=True)
class Cold:
    name: ClassVar[str] = "cold"
    ice: Annotated[int, Option("add this many cubes", "N", unit="cubes")]


@dataclass(frozen=True)
class Drink:
    way: Annotated[Hot | Cold, Option("make it this way")]
    sips: tuple[str, ...] = Option("take these", "WORD", convert=words).field(())
    hidden: int = 3


def test_a_model_is_built_of_what_was_given():
    assert build(Drink, {"way": "hot", "sips": "a b"}) == Drink(Hot(), ("a", "b"))
    assert build(Drink, {"way": "cold", "ice": 2}) == Drink(Cold(2))
    assert [one.name for one in declared(Drink)] == ["way", "degrees", "ice", "sips"]
    with pytest.raises(UserError, match="--degrees belongs to --way hot and the way is cold"):
        build(Drink, {"way": "cold", "ice": 2, "degrees": 1.0})
    with pytest.raises(UserError, match="--way cold has no --ice"):
        build(Drink, {"way": "cold"})
