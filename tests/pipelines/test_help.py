"""The help of every command: each option explained once, with its unit and default."""

from __future__ import annotations

import re
import shlex
from dataclasses import MISSING, dataclass
from typing import Annotated, ClassVar

import pytest

from cotbert_core.errors import UserError
from cotbert_core.readouts import FeatureOptions
from pipelines.cli import COMMANDS, build_parser, main
from pipelines.evaluating.options import EvaluateOptions
from pipelines.options.declare import (
    GENERAL,
    LAST_TITLES,
    TITLES,
    Declared,
    Option,
    build,
    declared,
)

OPTIONS = [(name, one) for name, command in COMMANDS.items() for one in declared(command.options)]
OWN_TITLES = ("the job to submit", "a submitted job")
NO_VERBS = ("the", "a", "of", "how", "what", "where", "which", "whose", "instead", "number")
UNITLESS = (
    "keyword-weight",
    "learning-rate",
    "port",
    "seed",
    "sampling-seed",
    "temperature",
    "near-duplicates",
)
# Options that mean different things in different commands, and why.
DIFFERENT = {
    "action": "on a cluster, on a folder of SentEval's tasks (data)",
    "batch-tokens": "of a batch of Marian models, of the joined requests of serve",
    "corpus": "a prepared corpus (augment), one to train on, or plain text to measure",
    "denoise": "tokens needs a way of denoising, evaluate can leave it out",
    "embeddings": "search takes an index too",
    "encoder": "the argument ENCODER where it is all that a command needs",
    "folder": "of queued records (track-sync), of SentEval's tasks (data)",
    "format": "of a model (export), of an index",
    "max-tokens": "of a sentence, of a generated template",
    "model": "of embeddings (search), of an endpoint (augment), or the argument MODEL",
    "name": "of a recipe, a space or a job",
    "output": "a file in evaluate and generate-templates",
    "precision": "of Marian models, which have other number formats",
    "readout": "evaluate knows readouts that need no training",
    "recipe": "the argument RECIPE of train",
    "sample": "of the corpus, of the rows that train an index",
    "senteval": "the dev set, the test set or all tasks",
    "sentences": "the arguments of tokens",
    "steps": "of the best of all candidates (adapt), of the two of quickstart",
    "tasks": "compare scores STS tasks alone",
    "top": "rows or tokens",
    "top-k": "tokens to average, or to sample from",
    "update": "of embeddings (embed), of an index",
}


def fault(one):
    """What is wrong with an option's help, or None."""
    text, verb = one.option.help, one.option.help.split()[0]
    titled = one.option.group in (*TITLES, *LAST_TITLES, *OWN_TITLES)
    valued = one.kind is not bool
    number = one.kind in (int, float) and one.name not in UNITLESS
    checks = {
        "no verb at the beginning": re.fullmatch("[a-z]+", verb) and verb not in NO_VERBS,
        "a full stop at the end": not text.endswith("."),
        "two blanks": "  " not in one.help,
        "no title": titled or one.option.group.startswith("--method "),
        "no metavar": one.option.metavar or one.choices or not valued,
        "no default": one.default is MISSING or not valued or "(default: " in one.help,
        "a default of a switch": valued or (one.default is False and "default" not in one.help),
        "no unit": not number or (one.option.unit or "0 to 1").removesuffix("s") in one.help,
    }
    return next((name for name, holds in checks.items() if not holds), None)


def test_every_option_is_explained():
    faults = [(command, one.name, wrong) for command, one in OPTIONS if (wrong := fault(one))]
    assert faults == []


@pytest.mark.parametrize(
    ("option", "wrong"),
    [
        (Option("the number of rows", "N", unit="rows", group=GENERAL), "no verb at the beginning"),
        (Option("show rows.", "N", unit="rows", group=GENERAL), "a full stop at the end"),
        (Option("show rows", unit="rows", group=GENERAL), "no metavar"),
        (Option("show rows", "N", unit="rows"), "no title"),
        (Option("show some", "N", group=GENERAL), "no unit"),
        (Option("show rows", "N", unit="rows", group=GENERAL), None),
    ],
)
def test_a_bad_help_is_found(option, wrong):
    assert fault(Declared("rows", option, int, False, (), 3)) == wrong


def test_an_option_is_described_the_same_way_in_every_command():
    described = {}
    for _, one in OPTIONS:
        description = (one.option.help, one.option.metavar, one.choices, one.option.positional)
        described.setdefault(one.name, set()).add(description)
    different = {name for name, texts in described.items() if len(texts) > 1}
    assert different == set(DIFFERENT)


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
    build(COMMANDS[command].options, {"command_line": None, **vars(parsed(words[1:]))})
    if "--" in words:
        parsed(words[words.index("--") + 1 :])


def test_defaults_in_words_are_those_of_the_code():
    shown = {one.name: one.option.default for one in declared(EvaluateOptions)}
    assert shown["frequent-count"] == f"{FeatureOptions().frequent} tokens"
    assert shown["top-k"] == f"{FeatureOptions().top_k} tokens"


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
    degrees: Annotated[float, Option("heat to this", "X", unit="degrees")] = 90.0


@dataclass(frozen=True)
class Cold:
    name: ClassVar[str] = "cold"
    ice: Annotated[int, Option("add this many cubes", "N", unit="cubes")]


@dataclass(frozen=True)
class Drink:
    way: Annotated[Hot | Cold, Option("make it this way")]
    sips: Annotated[tuple[str, ...], Option("take these", "WORD", convert=words)] = ()
    hidden: int = 3


def test_a_model_is_built_of_what_was_given():
    assert build(Drink, {"way": "hot", "sips": "a b"}) == Drink(Hot(), ("a", "b"))
    assert build(Drink, {"way": "cold", "ice": 2}) == Drink(Cold(2))
    assert [one.name for one in declared(Drink)] == ["way", "degrees", "ice", "sips"]
    with pytest.raises(UserError, match="--degrees belongs to --way hot and the way is cold"):
        build(Drink, {"way": "cold", "ice": 2, "degrees": 1.0})
    with pytest.raises(UserError, match="--way cold has no --ice"):
        build(Drink, {"way": "cold"})
