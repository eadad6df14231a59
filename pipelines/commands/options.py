"""Options that several commands share."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

Arguments = argparse.Namespace


def names_of(text: str | None) -> tuple[str, ...]:
    """The names of an option that takes several with commas."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def job_options(command: argparse.ArgumentParser, output: str) -> None:
    command.add_argument("--output", required=True, type=Path, metavar="DIR", help=output)
    command.add_argument("--verbose", action="store_true", help="show Ray's own output too")


def encoding_option(command: argparse.ArgumentParser, of: str) -> None:
    """--encoding of text files; of: what holds them, in words."""
    command.add_argument(
        "--encoding",
        metavar="NAME",
        help=f"encoding of the txt, csv, tsv and jsonl files of {of}, e.g. latin-1, cp1252 or "
        "utf-16 (default: utf-8)",
    )


def reading_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--template", help="read at this template's last mask (a name or a text)")
    command.add_argument("--readout", choices=("mask", "cls", "mean"), help="how a vector is read")
    command.add_argument(
        "--precision", default="auto", choices=("auto", "bf16", "fp32"), help="of the encoder"
    )


def training_options(command: argparse.ArgumentParser, resumable: bool = True) -> None:
    """Of commands that train: the corpus, the dev pairs and changes of the recipe's settings.

    resumable: whether the command goes on with an earlier run when it is told to, not by itself.
    """
    command.add_argument(
        "--corpus",
        required=True,
        metavar="DIR",
        help="a prepared corpus, or raw text (a file, folder or glob), prepared into a cache",
    )
    command.add_argument("--text-column", default="text", help="of a raw corpus with columns")
    for name in ("augmented", "negative"):
        command.add_argument(
            f"--{name}-column", metavar="COL", help="of a raw corpus, as for prepare"
        )
    encoding_option(command, "a raw corpus")
    command.add_argument("--encoder", metavar="NAME", help="instead of the recipe's")
    command.add_argument("--workers", type=int, metavar="N", help="instead of the recipe's")
    dev = command.add_mutually_exclusive_group()
    dev.add_argument("--senteval", type=Path, metavar="DIR", help="choose the best by STS-B dev")
    dev.add_argument(
        "--dev-pairs",
        type=Path,
        metavar="FILE",
        help="choose the best by these pairs (tab-separated: score, sentence1, sentence2); "
        "without either, by the pairs in this package",
    )
    command.add_argument("--config", type=Path, metavar="FILE", help="settings in YAML")
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="A.B=VALUE",
        help="one setting, e.g. optimizer.learning_rate=3e-5; may be repeated",
    )
    if resumable:
        command.add_argument("--resume", action="store_true", help="go on with an interrupted run")


def recipe_settings(arguments: Arguments, recipe: str) -> Any:
    """TrainSettings of a recipe with the changes that the options ask for."""
    from pipelines.recipes import settings_for

    flags = {"encoder": arguments.encoder, "workers": arguments.workers}
    return settings_for(recipe, arguments.config, arguments.set, flags)


def trainings(command: str, arguments: Arguments) -> list[Any]:
    """Return the TrainSettings of the trainings that a command starts; none for other commands.

    A wrong recipe, setting or space is a UserError here.
    """
    if command == "train":
        return [recipe_settings(arguments, arguments.recipe)]
    if command == "compare":
        from pipelines.recipes import RECIPES

        return [recipe_settings(arguments, name) for name in arguments.entries if name in RECIPES]
    if command == "tune":
        from tune_spaces import open_space

        recipe = arguments.recipe or open_space(arguments.space).recipe
        return [recipe_settings(arguments, recipe)]
    return []


def training_corpus(arguments: Arguments, settings: Any) -> Any:
    """The Corpus to train on; a raw one is prepared for the settings' encoder first."""
    from pipelines.commands.corpus_cache import open_or_prepare
    from pipelines.storage.output_folder import SETTINGS_FILE, check_writable, require_empty

    # Before a raw corpus is prepared, which takes long. What is in a folder that a job began in is
    # told by the job itself.
    if getattr(arguments, "resume", False) or (arguments.output / SETTINGS_FILE).is_file():
        check_writable(arguments.output.absolute())
    else:
        require_empty(arguments.output)
    return open_or_prepare(
        arguments.corpus,
        settings.encoder,
        settings.max_length,
        arguments.text_column,
        arguments.verbose,
        arguments.augmented_column,
        arguments.negative_column,
        arguments.encoding,
    )
