"""cotbert tune: its options, and the call of its job."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pipelines.commands.printing import print_facts
from pipelines.commands.training import TrainingOptions, comparison
from pipelines.options import shared
from pipelines.options.declare import OUTPUT, Option
from pipelines.runtime.ending import print_ending
from pipelines.runtime.progress import print_output
from pipelines.tuning.options import TuneOptions


@dataclass(frozen=True, kw_only=True)
class Tune:
    options: TuneOptions
    training: TrainingOptions
    discard: bool = Option(
        "delete a different sweep in the output folder first", group=OUTPUT
    ).field(False)
    kept: shared.KeptFiles
    output: shared.JobFolder
    verbose: bool = shared.VERBOSE.field(False)


def run(given: Tune) -> None:
    from cotbert_core.settings import override
    from pipelines.training.baseline import baseline_sentence
    from pipelines.training.dev_sets import dev_metric
    from pipelines.training.sentence_length import with_corpus_max_length
    from pipelines.tuning.report import BEST
    from pipelines.tuning.state import model_of
    from pipelines.tuning.tables import trials_table
    from pipelines.tuning.trial_plan import check_fixed
    from pipelines.tuning.tune import tune

    settings = given.training.settings(given.options.recipe)
    options = replace(given.options, seeds=given.training.seeds_of(settings, given.options.seeds))
    check_fixed(options.space, given.training.differing(options.recipe, settings))
    stopping = options.stopping
    if stopping is not None and "eval_every" not in given.training.changed:
        settings = override(settings, {"eval_every": stopping.grace})
    corpus, dev = given.training.open_data(settings, given.output, verbose=given.verbose)
    result = tune(
        options,
        with_corpus_max_length(settings, corpus),
        corpus,
        dev,
        given.output,
        verbose=given.verbose,
        discard=given.discard,
        kept=given.kept,
    )
    print_output(trials_table(result["trials"]))
    metric = dev_metric(dev)
    shown = (
        *("dev", metric.name, "baseline", metric.baseline),
        *("training_seconds", "registered", "mlflow_parent_run_id"),
    )
    print_output()
    print_facts({key: result[key] for key in shown if key in result}, given.verbose)
    model = model_of(given.output, result["best"]["name"])
    encoder = result["best"]["settings"].get("encoder", settings.encoder)
    asked = comparison(given.training, override(settings, {"encoder": encoder}), model)
    print_ending(baseline_sentence(result, BEST), given.output, asked)
