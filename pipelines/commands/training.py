"""The options of the commands that train, and the settings and corpus made from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cotbert_core.errors import UserError
from pipelines.evaluating.options import LABELLED, LABELS
from pipelines.options import shared
from pipelines.options.declare import INPUT, RESOURCES, SELECTION, TRAINING, Option
from pipelines.runtime.ending import free_folder
from pipelines.runtime.progress import say_once

if TYPE_CHECKING:  # pydantic and pyarrow would slow --help
    from cotbert_core.settings import TrainSettings
    from pipelines.storage.corpus import Corpus
    from pipelines.training.dev_sets import DevSets

RECIPE_VALUE = "the recipe's value"
EPOCHS_INSTEAD = ": to train for epochs, give --set max_steps=null and no --steps"


@dataclass(frozen=True, kw_only=True)
class CorpusOptions:
    """The training corpus, and changes to a recipe's settings."""

    corpus: Annotated[
        str,
        Option(
            "train on this corpus: a prepared one, or raw text (a file, folder or glob), which is "
            "prepared and cached",
            "DIR_OR_TEXT",
            group=INPUT,
            path="input",
        ),
    ]
    text_column: str = shared.TEXT_COLUMN.field("text")
    encoding: str | None = shared.ENCODING.field(None)
    delimiter: str | None = shared.DELIMITER.field(None)
    encoder: str | None = replace(shared.ENCODER, default=RECIPE_VALUE).field(None)
    max_steps: int | None = replace(shared.STEPS, default=RECIPE_VALUE).field(None)
    batch_size: int | None = replace(
        shared.BATCH_SIZE,
        help="train on this many sentences in each step (pretrain: rows of packed tokens)",
        default=RECIPE_VALUE,
    ).field(None)
    learning_rate: float | None = replace(shared.LEARNING_RATE, default=RECIPE_VALUE).field(None)
    workers: int | None = replace(shared.WORKERS, default=RECIPE_VALUE).field(None)
    device: Literal["cpu", "gpu"] | None = Option(
        "train each worker on CPU cores or on a GPU of its own",
        group=RESOURCES,
        default="the recipe's value, or GPUs if there is one for every worker",
    ).field(None)
    config: Path | None = Option(
        "override the recipe's settings with those of this YAML file",
        "FILE",
        group=TRAINING,
        default="no changes",
    ).field(None)
    assignments: tuple[str, ...] = Option(
        "override one setting, e.g. optimizer.learning_rate=3e-5; may be repeated",
        "A.B=VALUE",
        group=TRAINING,
        flag="--set",
        append=True,
        path="name",
        default="no changes",
    ).field(())

    def settings(self, recipe: str) -> TrainSettings:
        """Return a recipe's settings with the overrides; a UserError lists every invalid one."""
        from pipelines.recipes import settings_for

        self._warn_of_two_values()
        settings = settings_for(recipe, self.config, self.assignments, self._flags)
        for name, value in self.differing(recipe, settings).items():
            if name in settings.idle:
                more = EPOCHS_INSTEAD if name == "epochs" else ""
                reason = f"because {settings.idle[name]}{more}"
                say_once(f"warning: {name} is {value} and has no effect, {reason}")
        return settings

    def differing(self, recipe: str, settings: TrainSettings) -> dict[str, Any]:
        """Return the flat settings that the user gave and that are not the recipe's own, which a
        file may repeat."""
        from cotbert_core.settings import flatten
        from pipelines.recipes import settings_for

        own, given = flatten(settings_for(recipe, None, (), {})), flatten(settings)
        named = sorted(self.changed & given.keys())
        return {name: given[name] for name in named if given[name] != own.get(name)}

    def _warn_of_two_values(self) -> None:
        from pipelines.reading.assignments import assigned

        given = assigned(self.assignments)
        for name, value in self._flags.items():
            if given.get(name, value) != value:
                say_once(
                    f"warning: --set {name}={given[name]} has no effect, because the option for "
                    f"{name} gives {value}"
                )

    @property
    def changed(self) -> set[str]:
        """The flat names of the settings that override the recipe."""
        from pipelines.recipes import changed_paths

        return changed_paths(self.config, self.assignments) | set(self._flags)

    @property
    def _flags(self) -> dict[str, Any]:
        """The flat settings given by options of their own, such as --steps."""
        values = {
            "encoder": self.encoder,
            "workers": self.workers,
            "max_steps": self.max_steps,
            "batch_size": self.batch_size,
            "optimizer.learning_rate": self.learning_rate,
            "gpus_per_worker": None if self.device is None else int(self.device == "gpu"),
        }
        return {name: value for name, value in values.items() if value is not None}

    @property
    def reading(self) -> dict[str, Any]:
        """How raw text is read, besides the column of its texts."""
        return {"encoding": self.encoding, "delimiter": self.delimiter}

    def open_corpus(
        self,
        settings: TrainSettings,
        output: Path,
        inside: Sequence[str] = (),
    ) -> Corpus:
        """Return the corpus, after preparing raw text for the settings' encoder.

        inside: names of folders that may already be in `output`.
        """
        from pipelines.commands.corpus_cache import open_or_prepare
        from pipelines.reading.sources import find_files
        from pipelines.runtime.training_capacity import check_capacity
        from pipelines.storage.corpus import is_prepared
        from pipelines.storage.output_folder import require_job_folder

        # Checked before raw text is prepared, which takes long. The job itself checks a folder
        # that an earlier run left.
        check_capacity(settings)
        if settings.method.from_documents and not is_prepared(self.corpus):
            find_files((self.corpus,))  # raises if there is nothing of that name
            raise UserError(
                f"the positives of method {settings.method.name} are found in documents, and raw "
                f"text ({self.corpus!r}) has none: prepare it with `cotbert prepare --documents`"
            )
        require_job_folder(output, inside)
        return open_or_prepare(
            self.corpus,
            settings.encoder,
            settings.max_length,
            self.text_column,
            settings.method,
            **self.reading,
        )


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(CorpusOptions):
    """The training corpus, the data for dev scores, and changes to a recipe's settings."""

    augmented_column: str | None = shared.AUGMENTED_COLUMN.field(None)
    negative_column: str | None = shared.NEGATIVE_COLUMN.field(None)
    senteval: Path | None = shared.SENTEVAL.field(None)
    dev_pairs: Path | None = shared.DEV_PAIRS.field(None)
    labelled: str | None = replace(
        LABELLED,
        help="choose the step by how often the text nearest to another has the same label, in "
        "this csv, tsv, jsonl or parquet file or folder, with texts in --text-column; graded "
        "pairs are then only shown",
        group=SELECTION,
        default="graded pairs choose, or with --set dev=own the corpus's held-out documents",
    ).field(None)
    label_column: str | None = replace(LABELS, group=SELECTION).field(None)

    @property
    def reading(self) -> dict[str, Any]:
        return {
            **super().reading,
            "augmented_column": self.augmented_column,
            "negative_column": self.negative_column,
            "labelled": self.labelled,
        }

    def seeds_of(self, settings: TrainSettings, seeds: tuple[int, ...] | None) -> tuple[int, ...]:
        """Return the given seeds, or the one of the settings; UserError if both are given, except
        for seed 0, which a file with all settings names."""
        if seeds is not None and "seed" in self.changed and settings.seed:
            raise UserError(
                f"seeds is {','.join(map(str, seeds))!r} and --set or --config gives seed "
                f"{settings.seed} too: leave one of them out"
            )
        return (settings.seed,) if seeds is None else seeds

    def open_data(self, settings: TrainSettings, output: Path) -> tuple[Corpus, DevSets]:
        """Return the corpus and the dev sets by which the best step is chosen.

        Labels and graded pairs are read first. With `dev: own`, raw text is refused before it is
        prepared, because it has no held-out documents.
        """
        if settings.method.name == "mlm":
            raise UserError("method mlm is trained by `cotbert pretrain`: give the recipe to it")
        from pipelines.evaluating.labelled_texts import MOST_DEV_TEXTS, read_dev_labels
        from pipelines.reading.assignments import assigned
        from pipelines.training.dev_sets import OWN, graded_sets, with_labelled, with_own

        how = {"text_column": self.text_column, **super().reading}
        labels = (self.labelled, self.label_column, MOST_DEV_TEXTS, (self.corpus,))
        labelled = read_dev_labels(*labels, **how)
        if "dev" in assigned(self.assignments) and settings.dev != OWN and not self.senteval:
            say_once(f"warning: dev={settings.dev} has no effect without --senteval")
        dev = graded_sets(settings, self.senteval, self.dev_pairs)
        if settings.dev == OWN and labelled is not None:
            raise UserError(
                f"dev is {OWN!r} and labelled is {self.labelled!r}, and only one of both can "
                "choose the step: leave one of them out"
            )
        if settings.dev == OWN:
            with_own(dev, Path(self.corpus))
        elif labelled is not None:
            dev = with_labelled(dev, labelled)
        corpus = self.open_corpus(settings, output)
        return corpus, with_own(dev, corpus.path) if settings.dev == OWN else dev


def comparison(training: TrainingOptions, settings: TrainSettings, model: Path) -> list[str | Path]:
    """Return the command line that compares a trained model with the untouched encoder.

    The pairs of --dev-pairs, or the labels, already chose the step and prove nothing: then it
    embeds a text.
    """
    from cotbert_core.evaluation.sts import STS_TASKS, missing_tasks

    if settings.dev == "own":
        return ["evaluate", settings.encoder, model, "--corpus", Path(training.corpus)]
    senteval = training.senteval
    # A training needs only the dev set, so some tasks may be missing, or all.
    if senteval is not None and len(missing_tasks(senteval, [*STS_TASKS])) < len(STS_TASKS):
        tasks = ("--senteval", senteval, "--allow-missing")
        return ["evaluate", settings.encoder, model, *tasks]
    if training.dev_pairs is not None or training.labelled is not None:
        return ["embed", model, "--input", "YOUR.txt", "--output", free_folder("runs/vectors")]
    return ["evaluate", settings.encoder, model]
