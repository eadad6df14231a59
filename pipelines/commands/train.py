"""cotbert train: its options, and the call of its job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cotbert_core.errors import UserError
from pipelines.commands.printing import print_facts
from pipelines.commands.training import TrainingOptions, comparison
from pipelines.options import shared
from pipelines.options.declare import TRAINING, Option
from pipelines.runtime.ending import print_ending
from pipelines.runtime.progress import print_output

PROFILE = Option(
    "time the sections and operators of two steps, and trace them, in DIR/profile", group=TRAINING
)


@dataclass(frozen=True, kw_only=True)
class Train:
    recipe: Annotated[
        str,
        Option(
            "train by this recipe: `cotbert recipes` lists them, and `cotbert recipes RECIPE` "
            "prints its values",
            "RECIPE",
            positional=True,
        ),
    ]
    training: TrainingOptions
    seeds: tuple[int, ...] | None = shared.SEEDS.field(None)
    profile: bool = PROFILE.field(False)
    kept: shared.KeptFiles
    output: shared.JobFolder
    resume: bool = shared.RESUME.field(False)

    def run(self) -> None:
        settings = self.training.settings(self.recipe)
        from pipelines.comparing.seeded_runs import train_seeds
        from pipelines.training.baseline_sentence import baseline_sentence
        from pipelines.training.inputs import check_inputs, check_warmup
        from pipelines.training.profiling import read_sections
        from pipelines.training.sentence_length import with_corpus_max_length
        from pipelines.training.train import train
        from pipelines.training.training_run import RunOptions

        if self.profile and self.seeds is not None:
            raise UserError(
                "--profile and --seeds are both given, and only a single run can be profiled: "
                "leave one of them out"
            )
        self.training.seeds_of(settings, self.seeds)  # UserError if both give one
        check_warmup(settings, settings.max_steps)  # before raw text is prepared
        corpus, dev = self.training.open_data(settings, self.output)
        options = RunOptions(recipe=self.recipe, profile=self.profile, kept=self.kept)
        settings = with_corpus_max_length(settings, corpus)
        if self.seeds is None:
            result = train(settings, corpus, dev, self.output, options)
            print_facts(result)
            if self.profile:
                print_output("\n" + read_sections(self.output), end="")
            asked = comparison(self.training, settings, self.output / "model")
            print_ending(baseline_sentence(result), self.output, asked)
            return
        check_inputs(settings, corpus)
        result = train_seeds(settings, self.seeds, corpus, dev, self.output, options)
        print_facts({key: value for key, value in result.items() if key != "runs"})
        from pipelines.comparing.seeds_report import mean_sentence  # matplotlib

        print_ending(mean_sentence(result), self.output)
