"""Trainings in tests: sentences that the tiny tokenizers know, command lines, and their files."""

from __future__ import annotations

from pathlib import Path

from waiting import until

from cotbert_core.files import read_json
from cotbert_core.training.checkpoints import checkpoints

SUBJECTS = ("A man", "Two dogs", "The children", "She", "Nobody", "A woman", "The penguin")
VERBS = ("is singing", "walks", "saw a penguin")
ENDS = ("on the stage.", "in the green field", "while they watch the ice.", "after the answer.")
SENTENCES = [f"{s} {v} {e}" for s in SUBJECTS for v in VERBS for e in ENDS]


def training(encoder, corpus, output, *settings, job=("train", "quickstart"), flags=()):
    """The words of a training with these settings (`a.b=value`) and flags."""
    given = ("--corpus", corpus, "--encoder", encoder, "--output", output)
    return [*job, *map(str, given), *set_words(*settings), *map(str, flags)]


def set_words(*settings):
    return [word for setting in settings for word in ("--set", setting)]


def result_of(output: Path) -> dict:
    return dict(read_json(output / "result.json"))


def wait_for_checkpoint(output: Path, step: int = 1) -> None:
    until(lambda: any(found.step >= step for found in checkpoints(output / "checkpoints")))
