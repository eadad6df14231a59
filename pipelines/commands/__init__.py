"""The commands: one file each for its options and the call they become.

A job's own module is imported when the job runs, so that `--help` answers at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from pipelines.commands import embed, evaluate, listings, prepare, quickstart, train
from pipelines.commands.options import Arguments

Command = tuple[Callable[[argparse.ArgumentParser], None], Callable[[Arguments], None], str]
COMMANDS: dict[str, Command] = {
    "quickstart": (
        quickstart.add_options,
        quickstart.run,
        "the whole main job on this machine",
    ),
    "prepare": (
        prepare.add_options,
        prepare.run,
        "make a corpus: distinct, tokenized sentences",
    ),
    "train": (train.add_options, train.run, "train an encoder by a recipe on a corpus"),
    "evaluate": (
        evaluate.add_options,
        evaluate.run,
        "score an encoder on STS tasks or graded pairs",
    ),
    "embed": (embed.add_options, embed.run, "turn text into vectors in Parquet"),
    "recipes": (
        listings.recipes_options,
        listings.recipes,
        "list the training recipes, or print one",
    ),
    "templates": (listings.no_options, listings.templates, "list the templates"),
}

__all__ = ["COMMANDS", "Arguments", "Command"]
