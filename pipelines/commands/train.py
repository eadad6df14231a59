"""cotbert train: its options, and the call they become."""

from __future__ import annotations

import argparse
from typing import Any

from cotbert_core.errors import UserError
from pipelines.commands.options import (
    Arguments,
    job_options,
    recipe_settings,
    training_corpus,
    training_options,
)
from pipelines.commands.printing import print_result
from pipelines.runtime.progress import show


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("recipe", metavar="RECIPE", help="see `cotbert recipes`")
    training_options(command)
    command.add_argument(
        "--seeds",
        metavar="N",
        help="train N times (seeds 0 to N-1; or name them: 3,5,8) and tell mean, spread, min, max",
    )
    command.add_argument(
        "--profile",
        action="store_true",
        help="clock every step by section and trace two: a table, and DIR/profile/ for the rest",
    )
    job_options(command, "new folder for the model, its checkpoints and report")


def run(arguments: Arguments) -> None:
    settings = recipe_settings(arguments, arguments.recipe)
    from pipelines.train import check_inputs, train
    from pipelines.training.baseline import baseline_sentence
    from pipelines.training.dev_sets import dev_sets
    from pipelines.training.multi_seed import parse_seeds, train_seeds
    from pipelines.training.profile_table import read_table
    from pipelines.training.sentence_length import follow_corpus

    seeds = parse_seeds(arguments.seeds) if arguments.seeds is not None else None
    _check_profile(arguments)
    dev = dev_sets(settings, arguments.senteval, arguments.dev_pairs)
    corpus = training_corpus(arguments, settings)
    settings = follow_corpus(settings, corpus)
    again: dict[str, Any] = {"resume": arguments.resume, "verbose": arguments.verbose}
    if seeds is None:
        result = train(settings, corpus, dev, arguments.output, profile=arguments.profile, **again)
        print_result(result)
        if arguments.profile:
            show("\n" + read_table(arguments.output), end="")
        show(f"\n{baseline_sentence(result)}")
        return
    check_inputs(settings, corpus)
    result = train_seeds(train, settings, seeds, corpus, dev, arguments.output, **again)
    print_result({key: value for key, value in result.items() if key != "runs"})
    mean = {**result, "dev_spearman": result["dev_spearman_mean"]}
    show(f"\n{baseline_sentence(mean, f'the mean of {len(seeds)} seeds')}")


def _check_profile(arguments: Arguments) -> None:
    """UserError for what a profile of one whole run cannot go with."""
    for name, given in (("resume", arguments.resume), ("seeds", arguments.seeds is not None)):
        if arguments.profile and given:
            raise UserError(
                f"--profile and --{name} are both given: a profile is of one run from its first "
                "step; leave one of them out"
            )
