"""cotbert index: its options, and the call of its job."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cotbert_core.errors import counted
from cotbert_core.files import read_json
from pipelines.commands.printing import print_result
from pipelines.options import shared
from pipelines.options.declare import INPUT, OUTPUT, Option
from pipelines.runtime.ending import print_ending, rows_again
from pipelines.searching.options import EMBEDDINGS, IndexOptions


@dataclass(frozen=True, kw_only=True)
class Index:
    embeddings: Annotated[str, EMBEDDINGS]
    format: Literal["faiss"] = Option(
        "write an index of this kind; faiss needs the package faiss-cpu", group=OUTPUT
    ).field("faiss")
    update: Path | None = Option(
        "add the new rows to a copy of this index, which `cotbert index` made of earlier "
        "embeddings of the same model; rows that no longer exist are dropped from a Flat index",
        "INDEX",
        group=INPUT,
        default="index all rows",
    ).field(None)
    options: IndexOptions
    output: shared.OutputFolder

    def run(self) -> None:
        from pipelines.searching.index import index

        result = index(self.embeddings, self.output, self.options, self.update)
        print_result(result)
        made = f"{counted(result['rows'], 'row')} indexed, {result['left_out']:,} left out."
        if self.update is not None:
            were = "was" if result["added"] == 1 else "were"
            made += f" {result['added']:,} {were} added and {result['dropped']:,} dropped."
        print_ending(made, self.output, ("search", self.output, "YOUR QUERY", *self._texts()))

    def _texts(self) -> tuple[str, ...]:
        """Return the words by which a search shows the texts, kept or read again."""
        from pipelines.storage.corpus import MANIFEST_FILE

        embedded = read_json(self.output / MANIFEST_FILE)["embeddings"]
        column, inputs = embedded.get("text_column", "text"), embedded.get("inputs", ())
        kept = column in embedded.get("keep", ()) or not inputs
        return rows_again(() if kept else ("--text", *inputs), column)
