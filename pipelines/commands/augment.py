"""cotbert augment: its options, and the call of its job."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.augmenting.options import AugmentOptions
from pipelines.commands.prepare import next_training
from pipelines.commands.printing import print_facts
from pipelines.options import shared
from pipelines.runtime.ending import print_ending
from pipelines.runtime.progress import say

# With fewer rewrites than this share of the rows, something is wrong with the prompt or the model.
FEW = 0.5
# The same, with more than this share of the rewrites equal to another row's. Of few rows some may
# rightly get the same.
REPEATED, LEAST_REWRITTEN = 0.5, 10


@dataclass(frozen=True, kw_only=True)
class Augment:
    options: AugmentOptions
    output: shared.JobFolder

    def run(self) -> None:
        from pipelines.augmenting.augment import augment
        from pipelines.storage.corpus import Corpus

        result = augment(self.options, self.output)
        print_facts(result)
        rewritten, rows = result["rewritten"], result["rows"]
        if rewritten < FEW * rows:
            say(
                f"warning: {rows - rewritten:,} of {rows:,} rows keep their own text in place of a "
                "rewrite: report.html shows why, with examples"
            )
        repeated = result.get("repeated", 0)  # counted for language models
        if rewritten >= LEAST_REWRITTEN and repeated > REPEATED * rewritten:
            say(
                f"warning: {repeated:,} of {rewritten:,} rewrites are the same as another row's: "
                "check --prompt and the model, and look at the examples in report.html"
            )
        corpus = Corpus.open(self.output)
        train = next_training(corpus, self.options.encoder or corpus.manifest["encoder"])
        print_ending(f"{rewritten:,} of {rows:,} rows now have a rewrite.", self.output, train)
