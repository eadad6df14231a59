"""The entries of a comparison: recipes on one budget, and readouts of the untrained encoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cotbert_core.errors import UserError, unknown
from cotbert_core.readouts import FEATURES
from cotbert_core.settings import TrainSettings, flatten, override
from pipelines.comparing.untrained import WHITENING
from pipelines.evaluating.evaluation_tasks import Tasks
from pipelines.recipes import RECIPES
from pipelines.storage.corpus import Corpus
from pipelines.training.dev_sets import DevSets, dev_digest, with_pairs
from pipelines.training.sentence_length import with_corpus_max_length

BUDGET = (
    "encoder",
    "batch_size",
    "max_length",
    "max_steps",
    "epochs",
    "eval_every",
    "dev",
    "precision",
    "workers",
    "cpus_per_worker",
)


@dataclass(frozen=True)
class Comparison:
    """The entries to compare, and the data.

    entries: settings of a recipe by name, or None for an untrained readout. tasks: STS tasks of a
    SentEval folder on which every model is also scored, or None.
    """

    entries: dict[str, TrainSettings | None]
    seeds: Sequence[int]
    dev: DevSets
    tasks: Tasks | None = None

    @property
    def trained(self) -> dict[str, TrainSettings]:
        """The entries that are recipes."""
        return {name: s for name, s in self.entries.items() if s is not None}

    @property
    def settings(self) -> TrainSettings:
        """The settings of the first recipe, whose budget all have."""
        return next(iter(self.trained.values()))

    @property
    def budget(self) -> dict[str, Any]:
        """The settings that all entries share, and the name of the dev pairs."""
        return with_pairs({key: getattr(self.settings, key) for key in BUDGET}, self.dev)

    def record(self, corpus: Corpus) -> dict[str, Any]:
        """Return what a resumed comparison must have in common with the first run."""
        return {
            "entries": {
                name: settings and with_pairs(flatten(settings), self.dev)
                for name, settings in self.entries.items()
            },
            "seeds": list(self.seeds),
            "corpus_digest": corpus.digest,
            "dev_digest": dev_digest(self.dev),
            "tasks": list(self.tasks.sts) if self.tasks else [],
        }


def same_budget(
    names: Sequence[str], settings_of: Callable[[str], TrainSettings], changed: set[str]
) -> dict[str, TrainSettings | None]:
    """Return the entries of a comparison; UserError for an unknown name.

    settings_of: gives a recipe's settings with the user's changes. changed: names of the changed
    settings.
    """
    readouts = {*FEATURES, WHITENING}
    for name in names:
        if name not in RECIPES and name not in readouts:
            raise unknown("recipe or readout", name, {**RECIPES, **dict.fromkeys(readouts)})
    if len(set(names)) < len(names):
        raise UserError(f"the entries {', '.join(names)} name one twice: give each once")
    trained = {name: settings_of(name) for name in names if name in RECIPES}
    if not trained:
        raise UserError(f"the entries {', '.join(names)} hold no recipe: give at least one")
    first = next(iter(trained))
    budget = {key: getattr(trained[first], key) for key in BUDGET if key not in changed}
    same = {name: override(settings, budget) for name, settings in trained.items()}
    # The first recipe stays unchanged: its settings know which values the user gave.
    return {name: trained[name] if name == first else same.get(name) for name in names}


def with_common_max_length(
    entries: dict[str, TrainSettings | None], corpus: Corpus
) -> dict[str, TrainSettings | None]:
    """Return all entries with the max_length that the first recipe takes from the corpus."""
    first = next(s for s in entries.values() if s is not None)
    length = with_corpus_max_length(first, corpus).max_length
    return {name: s and override(s, {"max_length": length}) for name, s in entries.items()}
