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

    def run(self) -> None:
        from cotbert_core.settings import override
        from pipelines.training.baseline_sentence import baseline_sentence
        from pipelines.training.dev_sets import dev_metric
        from pipelines.training.inputs import check_warmup
        from pipelines.training.sentence_length import with_corpus_max_length
        from pipelines.tuning.report import BEST
        from pipelines.tuning.state import model_of
        from pipelines.tuning.tables import trials_table
        from pipelines.tuning.trial_plan import check_fixed, varied
        from pipelines.tuning.tune import tune

        settings = self.training.settings(self.options.recipe)
        options = replace(self.options, seeds=self.training.seeds_of(settings, self.options.seeds))
        check_fixed(options.space, self.training.differing(options.recipe, settings))
        if not varied(options.space) & {"max_steps", "optimizer.warmup_steps"}:
            check_warmup(settings, settings.max_steps)  # before raw text is prepared
        stopping = options.stopping
        if stopping is not None and "eval_every" not in self.training.changed:
            settings = override(settings, {"eval_every": stopping.grace})
        corpus, dev = self.training.open_data(settings, self.output)
        result = tune(
            options,
            with_corpus_max_length(settings, corpus),
            corpus,
            dev,
            self.output,
            discard=self.discard,
            kept=self.kept,
        )
        print_output(trials_table(result["trials"]))
        metric = dev_metric(dev)
        shown = (
            *("dev", metric.name, "baseline", metric.baseline),
            *("training_seconds", "registered", "mlflow_parent_run_id"),
        )
        print_output()
        print_facts({key: result[key] for key in shown if key in result})
        model = model_of(self.output, result["best"]["name"])
        encoder = result.get("encoder", settings.encoder)  # none in those of earlier versions
        asked = comparison(self.training, override(settings, {"encoder": encoder}), model)
        print_ending(baseline_sentence(result, BEST), self.output, asked)
