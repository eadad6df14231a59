"""cotbert compare: its options, and the call of its job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cotbert_core.errors import UserError
from pipelines.commands.training import TrainingOptions
from pipelines.options import shared
from pipelines.options.declare import SCORES, Option
from pipelines.runtime.ending import print_ending


@dataclass(frozen=True, kw_only=True)
class Compare:
    entries: Annotated[
        tuple[str, ...],
        Option(
            "compare this recipe, or a variant of it with a name (RECIPE,name=NAME,SETTING=VALUE,"
            "...), or this readout without training: cls, last, first-last, static, top-tokens, "
            "whitening or flow",
            "RECIPE",
            positional=True,
        ),
    ]
    training: TrainingOptions
    seeds: tuple[int, ...] | None = shared.SEEDS.field(None)
    tasks: str | None = Option(
        "also score every model on these comma-separated STS tasks of --senteval; missing ones "
        "are skipped",
        "TASK,...",
        group=SCORES,
        default="sts with --senteval",
    ).field(None)
    kept: shared.KeptFiles
    output: shared.JobFolder
    resume: bool = shared.RESUME.field(False)

    def run(self) -> None:
        from pipelines.comparing.compare import compare
        from pipelines.comparing.entries import (
            Comparison,
            Entry,
            same_budget,
            with_common_max_length,
        )
        from pipelines.comparing.report import HEADER, cells
        from pipelines.evaluating.evaluation_tasks import choose_tasks
        from pipelines.runtime.progress import print_output, table
        from pipelines.training.inputs import check_warmup

        training = self.training
        entries = same_budget(self.entries, training.settings, training.changed)
        trained = [settings for settings in entries.values() if settings is not None]
        for settings in trained:
            check_warmup(settings, settings.max_steps)  # before raw text is prepared
        settings = trained[0]
        seeds = training.seeds_of(settings, self.seeds)
        tasks = None
        if training.senteval:
            tasks = choose_tasks(training.senteval, self.tasks or "sts", allow_missing=True)
            if not tasks.sts or tasks.transfer:
                shown = self.tasks or "sts"
                raise UserError(f"tasks is {shown!r}: compare scores STS tasks alone; name one")
        elif self.tasks is not None:
            raise UserError(f"tasks is {self.tasks!r} without a SentEval folder: give --senteval")
        corpus, dev = training.open_data(settings, self.output)
        if "max_length" not in training.changed:
            entries = with_common_max_length(entries, corpus)
        parsed = {entry.name: entry for entry in map(Entry.parse, self.entries)}
        comparison = Comparison(entries, seeds, dev, tasks, parsed)
        result = compare(comparison, corpus, self.output, kept=self.kept)
        print_output(table([cells(row) for row in result["rows"]], HEADER))
        print_ending("\n".join(result["verdicts"]), self.output)
