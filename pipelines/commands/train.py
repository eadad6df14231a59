"""cotbert train: its options, and the call of its job."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, Any

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
    verbose: bool = shared.VERBOSE.field(False)


def run(given: Train) -> None:
    settings = given.training.settings(given.recipe)
    from pipelines.comparing.seeded_runs import train_seeds
    from pipelines.training.baseline import baseline_sentence
    from pipelines.training.dev_sets import dev_metric
    from pipelines.training.inputs import check_inputs
    from pipelines.training.profiling import read_sections
    from pipelines.training.sentence_length import with_corpus_max_length
    from pipelines.training.train import train

    if given.profile and given.seeds is not None:
        raise UserError(
            "--profile and --seeds are both given, and only a single run can be profiled: leave "
            "one of them out"
        )
    given.training.seeds_of(settings, given.seeds)  # UserError if both give one
    corpus, dev = given.training.open_data(settings, given.output, verbose=given.verbose)
    how: dict[str, Any] = {"verbose": given.verbose, "kept": given.kept, "recipe": given.recipe}
    settings = with_corpus_max_length(settings, corpus)
    if given.seeds is None:
        result = train(settings, corpus, dev, given.output, profile=given.profile, **how)
        print_facts(result, given.verbose)
        if given.profile:
            print_output("\n" + read_sections(given.output), end="")
        asked = comparison(given.training, settings, given.output / "model")
        print_ending(baseline_sentence(result), given.output, asked)
        return
    check_inputs(settings, corpus)
    result = train_seeds(settings, given.seeds, corpus, dev, given.output, **how)
    print_facts({key: value for key, value in result.items() if key != "runs"}, given.verbose)
    metric, before = dev_metric(dev).name, dev_metric(dev).before
    mean = {**result, metric: result[f"{metric}_mean"]}
    if None not in (untrained := [run[before] for run in result["runs"]]):
        mean[before] = fmean(untrained)
    who = f"the mean of {len(given.seeds)} seed{'s' * (len(given.seeds) > 1)}"
    print_ending(baseline_sentence(mean, who), given.output)
