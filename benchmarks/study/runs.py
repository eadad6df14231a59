"""The commands of `cotbert` that make up the study, in order.

A finished command is not run again, so an interrupted study continues. Each entry is a comparison
of its own, so a new entry does not repeat the others. With a small budget (`steps`) all entries
share it, and learning rates are searched first (`rates`); otherwise each recipe is trained as
published.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.study.entries import (
    DOCUMENTS,
    GROUPS,
    METHODS,
    READOUTS,
    SAMPLE,
    SENTENCES,
    TAUGHT,
    TRIPLES,
    UNTRAINED,
    UNTRAINED_READOUT,
    Entry,
    Group,
)
from benchmarks.study.rates import SEED, best_rate, rate_name, rates_of, recipes_that_try
from benchmarks.study.sick_triples import write_triples
from cotbert_core.files import write_text
from pipelines.cli import main

TEACHERS = ("simcse-base", "promptbert-base")
TASKS = "STS12,STS13,STS14,STS15,STS16,STS-B,SICK-R"
# The maximum number of tokens of a sentence, and of the rest of a document, on a small budget.
MAX_LENGTH = 32
# The numbers of held-out texts: at most a tenth of the long sentences in 12,000 lines of Wikipedia.
HELD_OUT = {SENTENCES: "700", DOCUMENTS: "1000"}
GEOMETRY = ("promptbert-base", "conpvp-base", "cot-bert-base")


@dataclass(frozen=True)
class Study:
    """The encoder, the data and the budget.

    sentences: file with a sentence per line. documents: files with a document per row. steps: steps
    of each training on a small budget; None to train as published. checks: dev checks of each such
    training. recipes: train only these, all if empty.
    """

    output: Path
    encoder: str
    senteval: Path
    sentences: Path
    documents: tuple[Path, ...]
    seeds: int = 5
    steps: int | None = 50
    batch_size: int = 64
    checks: int = 5
    groups: tuple[str, ...] = tuple(group.name for group in GROUPS)
    recipes: tuple[str, ...] = ()

    def chosen(self) -> list[Group]:
        """Return the groups to run, with the entries of the chosen recipes."""
        groups = [group for group in GROUPS if group.name in self.groups]
        return [replace(group, entries=tuple(self._of(group))) for group in groups]

    def _of(self, group: Group) -> list[Entry]:
        return [one for one in group.entries if not self.recipes or one.recipe in self.recipes]

    @property
    def budget(self) -> tuple[str, ...]:
        """Return the settings that all trainings share."""
        if self.steps is None:
            return ("dev=sts-b",)
        return (
            "dev=sts-b",
            f"batch_size={self.batch_size}",
            f"max_steps={self.steps}",
            f"eval_every={max(1, self.steps // self.checks)}",
            "optimizer.warmup_steps=0",
            "optimizer.schedule=linear",
            f"max_length={MAX_LENGTH}",
        )


@dataclass(frozen=True)
class Command:
    """The arguments of a `cotbert` command, and the file that exists when it has finished.

    printed: whether that file holds the printed output of the command.
    """

    words: tuple[str, ...]
    finished: Path
    printed: bool = False

    def run(self) -> None:
        """Run the command in this process unless it has finished; RuntimeError if it fails."""
        if self.finished.is_file():
            return
        print("cotbert", *self.words, flush=True)
        self.finished.parent.parent.mkdir(parents=True, exist_ok=True)
        with redirect_stdout(io.StringIO()) as shown:
            status = main(self.words)
        if status:
            raise RuntimeError(f"cotbert {self.words[0]} ended with status {status}")
        if self.printed:
            write_text(self.finished, shown.getvalue())


def run(study: Study) -> None:
    """Run all commands that have not finished."""
    triples = _triples_file(study)
    if any(group.corpus == TRIPLES for group in study.chosen()) and not triples.is_file():
        write_triples(study.senteval, triples)
    for command in commands(study):
        command.run()


def _triples_file(study: Study) -> Path:
    return study.output / "triples.csv"


def commands(study: Study) -> Iterator[Command]:
    """Yield the commands; a later one may read the output of an earlier one."""
    yield from _corpora(study)
    if METHODS.name in study.groups:
        yield from _readouts(study)
    yield from _rates(study)
    for group in study.chosen():
        yield from _group(study, group)
        if group.name == METHODS.name:
            yield from _other_scores(study, [entry.label for entry in group.entries])


def _corpora(study: Study) -> Iterator[Command]:
    wanted = {group.corpus for group in study.chosen()}
    if study.steps is not None:
        wanted.add(METHODS.corpus)  # learning rates are searched on it
    clean = ("--exclude", str(study.senteval))
    given: dict[str, tuple[str, ...]] = {
        SENTENCES: ("--input", str(study.sentences), *clean, "--hold-out", HELD_OUT[SENTENCES]),
        DOCUMENTS: (
            *("--input", *map(str, study.documents), *clean, "--documents", "row"),
            *("--split", "en", "--clean", "markup", "--hold-out", HELD_OUT[DOCUMENTS]),
        ),
        TRIPLES: ("--input", str(_triples_file(study)), "--triples"),
    }
    for name in sorted(wanted):
        folder = study.output / name
        words = ("prepare", *given[name], "--encoder", study.encoder, "--output", str(folder))
        yield Command(words, folder / "manifest.json")


def _readouts(study: Study) -> Iterator[Command]:
    """Yield the commands that score the untrained encoder and search templates for it."""
    for name, options in READOUTS.items():
        given = [str(study.sentences) if word == SAMPLE else word for word in options]
        yield _evaluation(study, [study.encoder], f"readouts/{name}.json", TASKS, given)
    senteval = ("--senteval", str(study.senteval))
    search = study.output / "search-template"
    words = ("search-template", study.encoder, *senteval, "--output", str(search))
    yield Command(words, search / "result.json")
    yield Command(("tokens", study.encoder), study.output / "tokens.txt", printed=True)
    models = [f"{study.encoder},readout={name}" for name in ("static", "last", "cls")]
    yield _geometry(study, "geometry-untrained", models)


def _rates(study: Study) -> Iterator[Command]:
    """Yield the searches for learning rates."""
    if study.steps is None:
        return
    chosen = [entry.recipe for group in study.chosen() for entry in group.entries]
    teachers = TEACHERS if set(chosen) & set(TAUGHT) else ()
    for recipe in recipes_that_try([*teachers, *chosen]):
        trials = [
            Entry(recipe, {"optimizer.learning_rate": rate}, rate_name(recipe, rate))
            for rate in rates_of(recipe)
        ]
        yield _compare(study, METHODS, trials, (SEED,), study.output / "rates" / recipe)


def _group(study: Study, group: Group) -> Iterator[Command]:
    """Yield the trainings of a group."""
    for entry in group.entries:
        changed = Entry(entry.recipe, {**entry.changes, **_given(study, entry)}, entry.label)
        folder = study.output / group.name / entry.label
        yield _compare(study, group, [changed], range(study.seeds), folder)


def _given(study: Study, entry: Entry) -> dict[str, Any]:
    """Return the settings of an entry that depend on earlier runs."""
    given: dict[str, Any] = {}
    if study.steps:
        given["optimizer.learning_rate"] = best_rate(study.output, entry.recipe)
        if entry.changes.get("method.positive") == "rest":
            given["method.rest_length"] = MAX_LENGTH
    if entry.recipe in TAUGHT:
        first, second = (_teacher(study, recipe) for recipe in TEACHERS)
        if entry.recipe == "dclr-base":
            return given | {"method.complement": first}
        given |= {"method.teacher": first, "method.second_teacher": second}
    return given


def _teacher(study: Study, recipe: str) -> Path:
    """Return a model trained with an unreported seed; without a budget, the first seed's model."""
    if study.steps is None:
        return _model(study, recipe)
    name = rate_name(recipe, best_rate(study.output, recipe))
    return study.output / "rates" / recipe / name / f"seed-{SEED}" / "model"


def _compare(
    study: Study, group: Group, entries: Sequence[Entry], seeds: Sequence[int], folder: Path
) -> Command:
    words = (
        *("compare", *(entry.text() for entry in entries)),
        *("--corpus", str(study.output / group.corpus), "--encoder", study.encoder),
        *("--senteval", str(study.senteval), "--tasks", TASKS),
        *("--seeds", ",".join(map(str, seeds)) + ","),
        *(word for one in study.budget for word in ("--set", one)),
        *("--output", str(folder)),
    )
    return Command(words, folder / "result.json")


def _other_scores(study: Study, names: Sequence[str]) -> Iterator[Command]:
    """Yield the other evaluations of the methods' first seeds: transfer, held out, geometry."""
    scored = {UNTRAINED: f"{study.encoder},readout={UNTRAINED_READOUT}"}
    scored |= {name: str(_model(study, name)) for name in names}
    for name, model in scored.items():
        words = ("evaluate", model, "--corpus", str(study.output / SENTENCES))
        path = study.output / "held-out" / f"{name}.json"
        yield Command((*words, "--output", str(path)), path)
    for name, model in scored.items():
        yield _evaluation(study, [model], f"transfer/{name}.json", "transfer", ())
    models = [f"{study.encoder},template=cot-bert/anchor"]
    models += [str(_model(study, name)) for name in GEOMETRY if name in names]
    yield _geometry(study, "geometry", models)


def _model(study: Study, entry: str) -> Path:
    return study.output / METHODS.name / entry / entry / "seed-0" / "model"


def _evaluation(
    study: Study, models: Sequence[str], name: str, tasks: str, options: Sequence[str]
) -> Command:
    path = study.output / name
    words = (
        *("evaluate", *models, *options, "--senteval", str(study.senteval), "--tasks", tasks),
        *("--allow-missing", "--output", str(path)),
    )
    return Command(words, path)


def _geometry(study: Study, name: str, models: Sequence[str]) -> Command:
    folder = study.output / name
    words = ("geometry", *models, "--senteval", str(study.senteval), "--output", str(folder))
    return Command(words, folder / "result.json")
