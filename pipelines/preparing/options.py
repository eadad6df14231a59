"""The options of `cotbert prepare`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from cotbert_core.errors import UserError
from pipelines.cleaning.options import CleanOptions
from pipelines.options import shared
from pipelines.options.checks import at_least
from pipelines.options.declare import HELD_OUT, INPUT, MODEL, ROWS, Option
from pipelines.reading.delimiters import named_delimiter
from pipelines.reading.encodings import named_encoding
from pipelines.runtime.progress import say

# The values of --documents besides column:NAME (pipelines.reading.documents).
DOCUMENTS = ("row", "file", "paragraph")
Query = Literal["any", "first"]
DOCUMENTS_OPTION = Option(
    "keep the sentences of a document together; a document is a row (a text, with --split, or a "
    "docstring), a file, a paragraph (of txt, md or rst, between blank lines), or column:NAME, the "
    "rows with the same value",
    "BY",
    group=INPUT,
    default="no documents",
)
HOLD_OUT = Option(
    "hold this many documents out of the corpus, at most a tenth, to score encoders by retrieval: "
    "a sentence of each must find the rest of it; without --documents, one half of a long sentence "
    "must find the other",
    "N",
    group=HELD_OUT,
    unit="documents",
    default="hold out none",
)
QUERY = Option(
    "take any sentence of a held-out document (chosen by hash) or the first one as its query, of "
    "the sentences with 5 words or more",
    group=HELD_OUT,
)


@dataclass(frozen=True)
class PrepareOptions:
    """The input of a corpus, and the sentences to keep.

    near_duplicates: a Jaccard similarity. triples: False after the three columns are set.
    """

    inputs: Annotated[tuple[str, ...], shared.INPUTS]
    encoder: Annotated[str, shared.ENCODER]
    max_length: int = Option(
        "truncate a sentence to this many tokens, special tokens not counted",
        "N",
        group=MODEL,
        unit="tokens",
    ).field(32)
    text_column: str = shared.TEXT_COLUMN.field("text")
    sample: int | None = Option(
        "keep a random sample of this many sentences, the same in every run",
        "N",
        group=ROWS,
        unit="sentences",
        default="keep all",
    ).field(None)
    on_invalid: Literal["drop", "fail"] = Option(
        "drop and count a row that is not valid UTF-8, JSON or text, or stop with an error",
        group=INPUT,
    ).field("drop")
    augmented_column: str | None = shared.AUGMENTED_COLUMN.field(None)
    negative_column: str | None = shared.NEGATIVE_COLUMN.field(None)
    exclude: tuple[str, ...] = Option(
        "drop the sentences that occur in these text, csv or tsv files or folders, e.g. an "
        "evaluation set, ignoring case, punctuation and white space",
        "FILE",
        group=ROWS,
        path="input",
        default="drop none",
    ).field(())
    near_duplicates: float | None = Option(
        "keep one text of each group of near duplicates, whose Jaccard similarity over "
        "5-letter shingles is at least this, 0.3 to 0.99",
        "SIMILARITY",
        group=ROWS,
        default="keep all",
    ).field(None)
    clean: CleanOptions = field(default_factory=CleanOptions)
    encoding: str | None = shared.ENCODING.field(None)
    delimiter: str | None = shared.DELIMITER.field(None)
    limit: int | None = shared.LIMIT.field(None)
    triples: bool = Option(
        "read triples: short for --text-column sent0 --augmented-column sent1 "
        "--negative-column hard_neg",
        group=INPUT,
    ).field(False)
    documents: str | None = DOCUMENTS_OPTION.field(None)
    hold_out: int | None = HOLD_OUT.field(None)
    query: Query = QUERY.field("any")
    wrapped: bool = shared.WRAPPED.field(False)
    hold_out_fewer: bool = False
    """Whether hold_out is lowered to a tenth of the documents if it is more (`cotbert adapt`)."""
    queries: int = 0
    """With fewer held-out documents than this, each has several queries (`cotbert adapt`)."""
    labelled: str | None = None
    """The labelled texts that choose the encoder: none are held out of too few documents, and the
    text column, the encoding and the delimiter may be those of the labelled texts alone."""

    def __post_init__(self) -> None:
        if self.triples:
            self._name_triples()
        object.__setattr__(self, "encoding", named_encoding(self.encoding))
        object.__setattr__(self, "delimiter", named_delimiter(self.delimiter))
        at_least(self, 1, "max_length", "sample", "limit")
        self._check_documents()
        if self.near_duplicates is not None and not 0.3 <= self.near_duplicates <= 0.99:
            raise UserError(
                f"near_duplicates is {self.near_duplicates}: give a similarity from 0.3 to 0.99"
            )
        if self.negative_column and not self.augmented_column:
            raise UserError(
                f"negative_column is {self.negative_column!r} and there is no augmented_column: "
                "give --augmented-column too"
            )
        texts = (*shared.comma_names(self.text_column), *self.paired_columns)
        if len(set(texts)) < len(texts):
            raise UserError(
                f"the columns {', '.join(texts)} name one twice: give each text its own column"
            )

    def _check_documents(self) -> None:
        by, _, column = (self.documents or "").partition(":")
        if self.documents not in (None, *DOCUMENTS) and not (by == "column" and column):
            raise UserError(
                f"documents is {self.documents!r}: give row, file, paragraph or column:NAME"
            )
        at_least(self, 2, "hold_out")
        needed = {"--documents": self.documents, "--hold-out": self.hold_out}
        if self.query == "first" and not all(needed.values()):
            missing = " and ".join(option for option, value in needed.items() if not value)
            raise UserError(
                f"query is 'first' and there are no held-out documents: give {missing} too"
            )

    def _name_triples(self) -> None:
        """Set the columns of triples; UserError if one is given already."""
        from pipelines.reading.columns import COLUMN_OPTIONS, TRIPLES  # it imports pyarrow

        names = (("text_column", "text"), ("augmented_column", None), ("negative_column", None))
        for option, (name, default), column in zip(COLUMN_OPTIONS, names, TRIPLES, strict=True):
            if getattr(self, name) != default:
                raise UserError(
                    f"--triples names all three columns: leave out {option} or --triples"
                )
            object.__setattr__(self, name, column)
        object.__setattr__(self, "triples", False)

    @property
    def paired_columns(self) -> tuple[str, ...]:
        """The columns of the paired texts, in the order of training.batches.COLUMNS."""
        return tuple(c for c in (self.augmented_column, self.negative_column) if c)


def recognise_triples(options: PrepareOptions) -> PrepareOptions:
    """Return the options with the columns of triples, if the files are and none is given."""
    from pipelines.reading import sources  # it imports pyarrow

    if options.text_column != "text" or options.paired_columns:
        return options
    if not sources.are_triples(options.inputs, options.encoding, options.delimiter):
        return options
    options = replace(options, triples=True)
    columns = ", ".join((options.text_column, *options.paired_columns))
    say(f"{' '.join(options.inputs)}: reading columns {columns} as triples")
    return options
