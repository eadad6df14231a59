"""The entries of a comparison: recipes on one budget, and readouts of the untrained encoder."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cotbert_core.errors import UserError, unknown
from cotbert_core.readouts import FEATURES
from cotbert_core.settings import TrainSettings, flatten, override
from pipelines.comparing.untrained import FITTED
from pipelines.evaluating.evaluation_tasks import Tasks
from pipelines.reading.assignments import assigned
from pipelines.recipes import RECIPES
from pipelines.runtime.progress import say_once
from pipelines.storage.corpus import Corpus
from pipelines.storage.output_folder import ENCODER_DIGEST
from pipelines.training.dev_sets import DevSets, dev_digest, with_pairs
from pipelines.training.inputs import encoder_digest
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
# Bytes of an entry's name, which is in the name of a metric; MLflow takes 250, a folder 255.
LONGEST_NAME = 200
_CHANGE = re.compile(r",\s*([a-z]\w*(?:\.\w+)*)=")


@dataclass(frozen=True)
class Entry:
    """An entry of the command line. name: of its row and its folder. changes: flat settings."""

    name: str
    recipe: str
    changes: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Entry:
        """Parse RECIPE[,name=NAME][,SETTING=VALUE]...; UserError for what is no entry.

        Without a name the row has the whole text as its name, in which other characters than
        those of file names become `-`.
        """
        recipe, *parts = _CHANGE.split(text)
        given = list(zip(parts[::2], parts[1::2], strict=True))
        changes = assigned([f"{key}={value}" for key, value in given if key != "name"])
        names = [value.strip() for key, value in given if key == "name"]
        if len(given) > len(changes) + len(names[:1]):
            raise UserError(f"entry {text!r} gives a setting or its name twice: give each once")
        if fixed := [key for key in changes if key in (*BUDGET, "seed")]:
            raise UserError(
                f"entry {text!r} changes {', '.join(fixed)}, which all entries of a comparison "
                "share: give it for all of them, by --set or --seeds"
            )
        if changes and recipe not in RECIPES:
            raise UserError(
                f"entry {text!r} changes settings of {recipe!r}, which is no recipe "
                "(`cotbert recipes` lists them): leave the changes out"
            )
        name = re.sub(r"[^\w.,=+-]+", "-", names[0] if names else text)
        if names and name != names[0]:
            say_once(f"note: entry {names[0]!r} is called {name}, the name of its folder")
        if not re.search(r"\w", name):  # such as .., which is another folder
            raise UserError(f"entry {text!r} has a name without a letter or digit: give one")
        if len(name.encode()) > LONGEST_NAME:
            raise UserError(
                f"entry {text!r} has a name of {len(name)} characters: give it a short one, "
                "name=NAME"
            )
        return cls(name, recipe, changes)


@dataclass(frozen=True)
class Comparison:
    """The entries to compare, and the data.

    entries: settings of a recipe by name, or None for an untrained readout. tasks: STS tasks of a
    SentEval folder on which every model is also scored, or None. given: by name, the entries of the
    command line.
    """

    entries: dict[str, TrainSettings | None]
    seeds: Sequence[int]
    dev: DevSets
    tasks: Tasks | None = None
    given: Mapping[str, Entry] = field(default_factory=dict)

    @property
    def trained(self) -> dict[str, TrainSettings]:
        """The entries that are recipes."""
        return {name: s for name, s in self.entries.items() if s is not None}

    def recipe(self, name: str) -> str:
        """Return the recipe of a trained entry, which may be a variant with another name."""
        return self.given[name].recipe if name in self.given else name

    @property
    def variants(self) -> dict[str, dict[str, Any]]:
        """The recipe and the changes of each entry that changes one or has another name."""
        entries = {
            name: {"recipe": e.recipe, "changes": e.changes} for name, e in self.given.items()
        }
        return {n: e for n, e in entries.items() if e["changes"] or e["recipe"] != n}

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
            ENCODER_DIGEST: encoder_digest(self.trained.values()),
            "tasks": list(self.tasks.sts) if self.tasks else [],
        }


def same_budget(
    texts: Sequence[str], settings_of: Callable[[str], TrainSettings], changed: set[str]
) -> dict[str, TrainSettings | None]:
    """Return the entries of a comparison by name; UserError for an unknown recipe.

    texts: `Entry.parse` reads them. settings_of: gives a recipe's settings with the user's changes.
    changed: names of the changed settings.
    """
    entries, readouts = [Entry.parse(text) for text in texts], {*FEATURES, *FITTED}
    for entry in entries:
        if entry.recipe not in RECIPES and entry.recipe not in readouts:
            choices = {**RECIPES, **dict.fromkeys(readouts)}
            raise unknown("recipe or readout", entry.recipe, choices)
    names = [entry.name for entry in entries]
    if len(set(names)) < len(names):
        raise UserError(
            f"the entries {', '.join(names)} name one twice: give each once, variants of a recipe "
            "as RECIPE,name=NAME,SETTING=VALUE"
        )
    recipes = [entry for entry in entries if entry.recipe in RECIPES]
    if not recipes:
        raise UserError(f"the entries {', '.join(names)} hold no recipe: give at least one")
    trained = {e.name: override(settings_of(e.recipe), e.changes) for e in recipes}
    for entry in recipes:
        _check_effect(entry, trained[entry.name])
    first = recipes[0].name
    budget = {key: getattr(trained[first], key) for key in BUDGET if key not in changed}
    same = {name: override(settings, budget) for name, settings in trained.items()}
    # The first recipe stays unchanged: its settings know which values the user gave.
    return {name: trained[name] if name == first else same.get(name) for name in names}


def _check_effect(entry: Entry, settings: TrainSettings) -> None:
    """Raise UserError if a change of an entry has no effect, so that it would equal another."""
    for name in entry.changes:
        if name in settings.idle:
            raise UserError(
                f"entry {entry.name!r} changes {name}, which has no effect, because "
                f"{settings.idle[name]}: leave it out, or change that too"
            )


def with_common_max_length(
    entries: dict[str, TrainSettings | None], corpus: Corpus
) -> dict[str, TrainSettings | None]:
    """Return all entries with the max_length that the first recipe takes from the corpus."""
    first = next(s for s in entries.values() if s is not None)
    length = with_corpus_max_length(first, corpus).max_length
    return {name: s and override(s, {"max_length": length}) for name, s in entries.items()}
