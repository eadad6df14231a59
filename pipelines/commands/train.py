"""cotbert train: its options, and the call they become."""

from __future__ import annotations

import argparse
from pathlib import Path

from pipelines.commands.options import Arguments, job_options
from pipelines.commands.printing import print_result


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("recipe", metavar="RECIPE", help="see `cotbert recipes`")
    command.add_argument(
        "--corpus",
        required=True,
        metavar="DIR",
        help="a prepared corpus, or raw text (a file, folder or glob), prepared into a cache",
    )
    command.add_argument("--text-column", default="text", help="of a raw corpus with columns")
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
    command.add_argument("--resume", action="store_true", help="go on with an interrupted run")
    job_options(command, "new folder for the model, its checkpoints and report")


def run(arguments: Arguments) -> None:
    from pipelines.recipes import settings_for

    flags = {"encoder": arguments.encoder, "workers": arguments.workers}
    settings = settings_for(arguments.recipe, arguments.config, arguments.set, flags)
    from pipelines.cache import open_or_prepare
    from pipelines.outputs import check_free
    from pipelines.train import dev_pairs, train

    if not arguments.resume:
        check_free(arguments.output)  # before a raw corpus is prepared, which takes long
    dev = dev_pairs(arguments.senteval, arguments.dev_pairs)
    corpus = open_or_prepare(
        arguments.corpus,
        settings.encoder,
        settings.max_length,
        arguments.text_column,
        arguments.verbose,
    )
    result = train(
        settings,
        corpus,
        dev,
        arguments.output,
        resume=arguments.resume,
        verbose=arguments.verbose,
    )
    print_result(result)
