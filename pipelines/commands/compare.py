"""cotbert compare: its options, and the call they become."""

from __future__ import annotations

import argparse

from cotbert_core.errors import UserError
from pipelines.commands.options import (
    Arguments,
    job_options,
    recipe_settings,
    training_corpus,
    training_options,
)


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "entries",
        nargs="+",
        metavar="RECIPE",
        help="recipes, and readouts that are not trained: cls, last, first-last, static, whitening",
    )
    training_options(command)
    command.add_argument(
        "--seeds", default="1", metavar="N", help="how many (0 to N-1), or which (3,5,8)"
    )
    command.add_argument(
        "--tasks",
        default="sts",
        help="with --senteval: STS tasks that every model is scored on too, those that are there",
    )
    job_options(command, "new folder for the runs, compare.html and result.json")


def run(arguments: Arguments) -> None:
    from pipelines.compare import Comparison, compare, follow_corpus_in_all, same_budget
    from pipelines.evaluating.evaluation_tasks import choose_tasks
    from pipelines.recipes import changed_paths
    from pipelines.reports.compare_page import HEADER, cells
    from pipelines.runtime.progress import show, table
    from pipelines.training.dev_sets import dev_sets
    from pipelines.training.multi_seed import parse_seeds

    seeds = parse_seeds(arguments.seeds)
    changed = changed_paths(arguments.config, arguments.set)
    entries = same_budget(arguments.entries, lambda name: recipe_settings(arguments, name), changed)
    settings = next(s for s in entries.values() if s is not None)
    dev = dev_sets(settings, arguments.senteval, arguments.dev_pairs)
    tasks = (
        choose_tasks(arguments.senteval, arguments.tasks, allow_missing=True)
        if arguments.senteval
        else None
    )
    if tasks is not None and not tasks.sts:
        raise UserError(f"tasks is {arguments.tasks!r}: compare scores STS tasks; name one")
    corpus = training_corpus(arguments, settings)
    if "max_length" not in changed:
        entries = follow_corpus_in_all(entries, corpus)
    comparison = Comparison(entries, seeds, dev, tasks)
    result = compare(
        comparison, corpus, arguments.output, resume=arguments.resume, verbose=arguments.verbose
    )
    show(table([cells(row) for row in result["rows"]], HEADER), end="\n\n")
    show("\n".join(result["verdicts"]))
