"""The options of `cotbert search` and `cotbert index`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from cotbert_core.choices import KEYWORD_WEIGHT
from cotbert_core.errors import UserError
from pipelines.options import shared
from pipelines.options.checks import above, at_least, only_with
from pipelines.options.declare import INPUT, MODEL, OUTPUT, SEARCH, Option

EMBEDDINGS = Option(
    "read the vectors that `cotbert embed` wrote into this folder",
    "EMBEDDINGS",
    positional=True,
    path="input",
)


@dataclass(frozen=True)
class SearchOptions:
    """The options of a search. encoding None: the one that `embed` was given."""

    embeddings: Annotated[
        str,
        replace(
            EMBEDDINGS,
            help="search the vectors that `cotbert embed` wrote into this folder, or the index of "
            "`cotbert index`",
        ),
    ]
    queries: Annotated[tuple[str, ...], Option("search for this text", "QUERY", positional=True)]
    top: int = Option("return this many rows for each query", "N", group=SEARCH, unit="rows").field(
        10
    )
    keywords: bool = Option(
        "search by words too: add the BM25 of the query's words to the cosine", group=SEARCH
    ).field(False)
    keyword_weight: float | None = Option(
        "with --keywords, multiply the BM25, which is 1 for the query's best text, by this; "
        "evaluate --corpus finds the best weight for your text",
        "WEIGHT",
        group=SEARCH,
        default=f"the weight that adapt chose for the model, else {KEYWORD_WEIGHT:g}",
    ).field(None)
    inputs: tuple[str, ...] = Option(
        "show the texts of this input, which must be all that `cotbert embed` read",
        "PATH",
        group=INPUT,
        flag="--text",
        path="input",
        default="the column that `cotbert embed --keep` stored, if any",
    ).field(())
    text_column: str = shared.TEXT_COLUMN.field("text")
    model: str | None = Option(
        "encode the queries with this copy of the model if the model was moved",
        "MODEL",
        group=MODEL,
        path="name",
        default="the model that made the vectors",
    ).field(None)
    query_template: str | None = Option(
        "put this template around the queries instead of the one that the texts have, e.g. "
        "'query: [X]'",
        "TEMPLATE",
        group=MODEL,
        default="the model's prompt for queries, if it has one",
    ).field(None)
    precision: shared.EncoderPrecision = "auto"
    encoding: str | None = replace(
        shared.ENCODING, default="the one that `cotbert embed` was given"
    ).field(None)

    def __post_init__(self) -> None:
        at_least(self, 1, "top")
        above(self, 0, "keyword_weight")
        only_with("keywords", self, "keyword_weight")
        only_with("inputs", self, "encoding")
        for number, text in enumerate(self.queries, start=1):
            if not text.split():
                raise UserError(
                    f"query {number} is {text!r}, an empty text: give words to look for"
                )
            if text != text.encode(errors="replace").decode():
                raise UserError(f"query {number} is {text!r}, which is not UTF-8: give valid text")


FACTORY = "Flat"


@dataclass(frozen=True)
class IndexOptions:
    """The FAISS index to write. FAISS wants 39 to 256 sampled rows per cluster."""

    factory: str | None = Option(
        "build the index that this FAISS factory string describes, e.g. IVF1024,Flat or HNSW32",
        "STRING",
        group=OUTPUT,
        default=FACTORY,
    ).field(None)
    sample: int = Option(
        "train the index on a sample of this many rows", "N", group=OUTPUT, unit="rows"
    ).field(100_000)
    seed: int = shared.SEED.field(0)

    def __post_init__(self) -> None:
        at_least(self, 1, "sample")
        at_least(self, 0, "seed")
        if "IDMap" in (self.factory or ""):
            raise UserError(
                f"factory is {self.factory!r}: leave IDMap out, every index stores the ids"
            )
