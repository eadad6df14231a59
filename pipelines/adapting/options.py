"""The options of `cotbert adapt`. The command line imports this file: nothing heavy at its top."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from cotbert_core.errors import UserError, unknown
from pipelines.cleaning.options import CleanOptions
from pipelines.evaluating.options import LABELLED, LABELS
from pipelines.options import shared
from pipelines.options.checks import above, at_least
from pipelines.options.declare import SCORES, SEARCH, SELECTION, TRAINING, Option
from pipelines.preparing.options import DOCUMENTS_OPTION, HOLD_OUT, QUERY, PrepareOptions, Query
from pipelines.reading import docstrings

_CONTRASTIVE = {"method.name": "denosent", "method.objective": "contrastive"}
_DENOSENT = {"method.name": "denosent", "method.objective": "both"}
# The training methods to try, with their settings, the most promising first: if trials run one
# after another, the later ones are stopped early when they are worse.
CANDIDATES: Mapping[str, Mapping[str, Any]] = {
    "denosent-rest": {**_CONTRASTIVE, "method.positive": "rest"},
    "denosent-neighbour": {**_CONTRASTIVE, "method.positive": "neighbour"},
    # With the sentence rebuilt, as in the paper, and not the rest, as in the released code, a step
    # takes 2.7 s instead of 4.6 on docstrings; the score is the same (55.0 and 55.5 % found first
    # after 30 steps, two seeds, standard deviation 0.8).
    "denosent-both-rest": {**_DENOSENT, "method.positive": "rest", "method.target": "original"},
    "denosent-both-neighbour": {**_DENOSENT, "method.positive": "neighbour"},
    "simcse": {"method.name": "simcse"},
    "cot-bert-template": {"method.name": "cot-bert"},
    "cot-bert-rest": {"method.name": "cot-bert", "method.positive": "rest"},
    "promptbert-template": {"method.name": "promptbert"},
    "promptbert-rest": {"method.name": "promptbert", "method.positive": "rest"},
}
# The candidates whose positive comes from the sentence's document.
FROM_DOCUMENTS = tuple(
    name
    for name, settings in CANDIDATES.items()
    if settings.get("method.positive") in ("rest", "neighbour")
)
# The value of --documents for rows that are single sentences.
NO_DOCUMENTS = "none"
# The maximum number of tokens of a sentence, which the encoder must be able to read. 99 % of the
# sentences of documentation and of reviews have at most 60 tokens.
SENTENCE_TOKENS = 64

# The default number of held-out documents or sentences, lowered to a tenth of those possible.
HELD_OUT = 1000
# The number of queries in all: with fewer held-out documents, each has several.
QUERIES = 1000


@dataclass(frozen=True)
class AdaptOptions:
    """The documents, the candidates, and the budget of each.

    documents: None for the default (`read_as`). candidates: all that are possible if none are
    named. without: candidates to leave out. pretrain: steps of masked-language-model training
    before the candidates, 0 for none.
    """

    inputs: Annotated[
        tuple[str, ...], replace(shared.INPUTS, metavar="DOCUMENTS", flag="", positional=True)
    ]
    encoder: str = replace(shared.ENCODER, help="adapt this encoder").field("all-MiniLM-L6-v2")
    documents: str | None = replace(
        DOCUMENTS_OPTION,
        default="row with --split and for docstrings, otherwise none: each row is a sentence",
    ).field(None)
    text_column: str = shared.TEXT_COLUMN.field("text")
    sentences: int | None = replace(
        shared.SENTENCES,
        help="use whole documents of about this many sentences in all",
        default="use all of them",
    ).field(None)
    encoding: str | None = shared.ENCODING.field(None)
    delimiter: str | None = shared.DELIMITER.field(None)
    wrapped: bool = shared.WRAPPED.field(False)
    clean: CleanOptions = field(default_factory=CleanOptions)
    hold_out: int | None = replace(
        HOLD_OUT, default="1,000 documents, or a tenth if that is less"
    ).field(None)
    query: Query = QUERY.field("any")
    senteval: Path | None = replace(
        shared.SENTEVAL,
        help="also score general text, on STS-B in this SentEval folder",
        group=SCORES,
    ).field(None)
    dev_pairs: Path | None = replace(shared.DEV_PAIRS, group=SCORES).field(None)
    labelled: str | None = replace(
        LABELLED,
        help="choose by how often the text nearest to another has the same label, in half of "
        "this csv, tsv, jsonl or parquet file or folder, with texts in --text-column; the "
        "other half confirms the choice",
        group=SELECTION,
        default="choose by the held-out documents or sentences",
    ).field(None)
    label_column: str | None = replace(LABELS, group=SELECTION).field(None)
    candidates: tuple[str, ...] = Option(
        f"try these training methods: {', '.join(CANDIDATES)}",
        "NAME,...",
        group=SEARCH,
        default="all of them; without documents, all that need none",
        convert=shared.comma_names,
    ).field(())
    without: tuple[str, ...] = Option(
        "leave out these training methods",
        "NAME,...",
        group=SEARCH,
        default="none",
        convert=shared.comma_names,
    ).field(())
    max_steps: int = replace(
        shared.STEPS,
        help="train the best method for this many steps; weak ones are stopped after a sixth "
        "and after half of them",
    ).field(90)
    batch_size: int = shared.BATCH_SIZE.field(64)
    learning_rate: float = shared.LEARNING_RATE.field(6e-5)
    pretrain: int = Option(
        "train the encoder as a masked language model for this many steps first, with the "
        "learning rate of recipe mlm-base",
        "STEPS",
        group=TRAINING,
        unit="steps",
        default="no pretraining",
    ).field(0)
    seed: int = shared.SEED.field(0)
    workers: int = replace(shared.WORKERS, default="").field(1)
    max_concurrent: int | None = replace(
        shared.MAX_CONCURRENT,
        help="train this many methods at a time; they share the cores",
        default="1 method, or as many as the GPUs allow",
    ).field(None)

    def __post_init__(self) -> None:
        for name in (*self.candidates, *self.without):
            if name not in CANDIDATES:
                raise unknown("candidate", name, CANDIDATES)
        self._check_documents()
        if not self.chosen:
            raise UserError(
                f"candidates is {','.join(self.candidates)!r} and without is "
                f"{','.join(self.without)!r}: leave at least one candidate"
            )
        at_least(self, 1, "max_steps", "workers", "max_concurrent", "sentences")
        at_least(self, 2, "batch_size", "hold_out")
        at_least(self, 0, "pretrain", "seed")
        above(self, 0, "learning_rate")
        if self.batch_size % self.workers:
            raise UserError(
                f"batch_size is {self.batch_size} and workers is {self.workers}: give a batch_size "
                "that is a multiple of workers"
            )
        self.prepare_options()  # raises for invalid values now, before the job starts

    def _check_documents(self) -> None:
        """Raise UserError for a candidate that needs documents if there are none."""
        needing = [name for name in self.candidates if name in FROM_DOCUMENTS]
        if needing and not self.has_documents:
            raise UserError(
                f"candidate {needing[0]!r} needs documents and documents is {NO_DOCUMENTS!r}: give "
                "--documents, or --split if each row is a text of several sentences, or leave this "
                "candidate out"
            )

    @property
    def read_as(self) -> str:
        """What a document is, NO_DOCUMENTS if each row is a sentence."""
        if self.documents is not None:
            return self.documents
        return "row" if self.clean.split or self.reads_docstrings else NO_DOCUMENTS

    @property
    def reads_docstrings(self) -> bool:
        """Whether docstrings of installed packages are among the documents."""
        return any(name.startswith(docstrings.PREFIX) for name in self.inputs)

    @property
    def has_documents(self) -> bool:
        """Whether the rows are documents or parts of them, and not single sentences."""
        return self.read_as != NO_DOCUMENTS

    @property
    def chosen(self) -> tuple[str, ...]:
        """The candidates to try, each once, in the order of CANDIDATES."""
        possible = [name for name in CANDIDATES if self.has_documents or name not in FROM_DOCUMENTS]
        named = self.candidates or possible
        return tuple(name for name in possible if name in named and name not in self.without)

    def prepare_options(self) -> PrepareOptions:
        """Return the options that prepare the documents."""
        return PrepareOptions(
            self.inputs,
            self.encoder,
            SENTENCE_TOKENS,
            self.text_column,
            self.sentences,
            clean=self.clean,
            encoding=self.encoding,
            delimiter=self.delimiter,
            wrapped=self.wrapped,
            documents=self.read_as if self.has_documents else None,
            hold_out=self.hold_out or HELD_OUT,
            query=self.query,
            hold_out_fewer=self.hold_out is None,
            queries=QUERIES,
            labelled=self.labelled,
        )
