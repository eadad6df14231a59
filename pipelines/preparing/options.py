"""The options of `cotbert prepare`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from cotbert_core.errors import UserError
from pipelines.cleaning.options import CleanOptions
from pipelines.reading import sources
from pipelines.reading.columns import TRIPLES
from pipelines.reading.encodings import named_encoding
from pipelines.runtime.progress import say


@dataclass(frozen=True)
class PrepareOptions:
    """The input of a corpus and what is done to it. Raises UserError for an invalid value.

    inputs: paths, folders, globs, URIs, docstrings:PACKAGE,..., sick:DIR, hf:NAME. max_length: most
    tokens of a sentence; longer ones are cut. sample: most rows, chosen by their hash; None for
    all. on_invalid: `drop` rows that cannot be read, or `fail`. augmented_column, negative_column:
    the columns of a row's paired texts; None for none. exclude: files of sentences that the corpus
    must not hold. near_duplicates: the Jaccard similarity from which one of two rows is dropped;
    None keeps both. clean: the cleaning of texts, which comes before these. encoding: that of txt,
    csv, tsv and jsonl files; None for UTF-8.
    """

    inputs: tuple[str, ...]
    encoder: str
    max_length: int = 32
    text_column: str = "text"
    sample: int | None = None
    on_invalid: str = "drop"
    augmented_column: str | None = None
    negative_column: str | None = None
    exclude: tuple[str, ...] = ()
    near_duplicates: float | None = None
    clean: CleanOptions = field(default_factory=CleanOptions)
    encoding: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "encoding", named_encoding(self.encoding))
        if self.max_length < 1:
            raise UserError(f"max_length is {self.max_length}: give at least 1 token")
        if self.sample is not None and self.sample < 1:
            raise UserError(f"sample is {self.sample}: give at least 1 row")
        if self.near_duplicates is not None and not 0.3 <= self.near_duplicates <= 0.99:
            raise UserError(
                f"near_duplicates is {self.near_duplicates}: give a similarity from 0.3 to 0.99"
            )
        if self.negative_column and not self.augmented_column:
            raise UserError(
                f"negative_column is {self.negative_column!r} and there is no augmented_column: "
                "give --augmented-column too"
            )
        texts = (self.text_column, *self.paired_columns)
        if len(set(texts)) < len(texts):
            raise UserError(
                f"the columns {', '.join(texts)} name one twice: give each text its own column"
            )

    @property
    def paired_columns(self) -> tuple[str, ...]:
        """The columns of the paired texts, in the order of training.batches.COLUMNS."""
        return tuple(c for c in (self.augmented_column, self.negative_column) if c)


def recognise_triples(options: PrepareOptions) -> PrepareOptions:
    """Return the options as if --triples were given, if the files hold triples and no option names
    a column; otherwise the unchanged options."""
    if options.text_column != "text" or options.paired_columns:
        return options
    if not sources.are_triples(options.inputs, options.encoding):
        return options
    text, augmented, negative = TRIPLES
    say(f"{' '.join(options.inputs)}: reading columns {text}, {augmented}, {negative} as triples")
    return replace(options, text_column=text, augmented_column=augmented, negative_column=negative)
