"""cotbert tune: its options, and the call they become."""

from __future__ import annotations

import argparse

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
    command.add_argument(
        "space", metavar="SPACE", help="see `cotbert spaces`; or a YAML or Python file of your own"
    )
    command.add_argument("--recipe", metavar="RECIPE", help="instead of the space's own")
    command.add_argument(
        "--search",
        default="grid",
        metavar="NAME",
        help="grid: all of a grid, draws by chance from ranges (default); optuna: each trial by "
        "the scores of those before it",
    )
    command.add_argument(
        "--trials",
        type=int,
        metavar="N",
        help="how many: without it all of a grid, and 12 of a space with a continuous axis or of "
        "optuna",
    )
    command.add_argument(
        "--seeds", default="1", metavar="N", help="every trial under N seeds, or these: 3,5,8"
    )
    command.add_argument(
        "--draw-seed", type=int, default=0, metavar="N", help="of what the trials draw"
    )
    command.add_argument(
        "--max-concurrent",
        type=int,
        metavar="N",
        help="trials at a time, sharing the cores (default: one, or as many as have GPUs)",
    )
    command.add_argument(
        "--asha",
        type=int,
        metavar="STEPS",
        help="stop bad trials: after so many steps, three times as many, nine times and so on, "
        "only the best third goes on (default: every trial runs to its end)",
    )
    command.add_argument(
        "--register",
        metavar="NAME",
        help="put the best model into MLflow's registry: models:/NAME@best",
    )
    training_options(command, resumable=False)
    command.add_argument(
        "--discard", action="store_true", help="throw away another sweep in the output folder"
    )
    job_options(command, "folder of the sweep; the same command goes on with what is in it")


def run(arguments: Arguments) -> None:
    from pipelines.training.baseline import baseline_sentence
    from pipelines.training.dev_sets import dev_sets
    from pipelines.training.multi_seed import parse_seeds
    from pipelines.training.sentence_length import follow_corpus
    from pipelines.tune import tune
    from pipelines.tuning.options import TuneOptions
    from pipelines.tuning.report import BEST, trials_table
    from pipelines.tuning.run_trials import Stopping
    from tune_spaces import open_space

    space = open_space(arguments.space)
    recipe = arguments.recipe or space.recipe
    settings = recipe_settings(arguments, recipe)
    options = TuneOptions(
        space,
        recipe,
        arguments.trials,
        parse_seeds(arguments.seeds),
        arguments.draw_seed,
        arguments.max_concurrent,
        Stopping(arguments.asha) if arguments.asha is not None else None,
        arguments.register,
        arguments.search,
    )
    dev = dev_sets(settings, arguments.senteval, arguments.dev_pairs)
    corpus = training_corpus(arguments, settings)
    settings = follow_corpus(settings, corpus)
    result = tune(
        options,
        settings,
        corpus,
        dev,
        arguments.output,
        verbose=arguments.verbose,
        discard=arguments.discard,
    )
    show(trials_table(result["trials"]))
    shown = (
        *("dev", "dev_spearman", "baseline", "baseline_spearman"),
        *("training_seconds", "start_seconds_per_trial", "registered"),
        "mlflow_parent_run_id",
    )
    show()
    print_result({key: result[key] for key in shown if key in result})
    show(f"\n{baseline_sentence(result, BEST)}")
