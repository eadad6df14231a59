"""cotbert prepare: its options, and the call of its job."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cotbert_core.errors import counted
from pipelines.commands.printing import print_facts
from pipelines.options import shared
from pipelines.options.declare import declared
from pipelines.options.shared import comma_names
from pipelines.preparing.options import PrepareOptions
from pipelines.runtime.ending import free_folder, print_ending
from pipelines.runtime.progress import print_output, say, table

if TYPE_CHECKING:  # pyarrow would slow --help
    from pipelines.storage.corpus import Corpus


@dataclass(frozen=True, kw_only=True)
class Prepare:
    options: PrepareOptions
    output: shared.JobFolder

    def run(self) -> None:
        from pipelines.preparing.prepare import prepare
        from pipelines.storage.corpus import Corpus

        result = prepare(self.options, self.output)
        print_output(rows_table(result), end="\n\n")
        print_facts(result)
        if result["truncated"]:
            say(
                f"note: {counted(result['truncated'], 'sentence')} of {result['rows']:,} had more "
                f"than {self.options.max_length} tokens, and their ends were dropped: a larger "
                "--max-length, up to the limit of the encoder, keeps them"
            )
        made, read = counted(result["rows"], "sentence"), counted(result["rows_read"], "row")
        sentence = f"Prepared {made} from {read}."
        print_ending(
            sentence, self.output, next_training(Corpus.open(self.output), self.options.encoder)
        )


def next_training(corpus: Corpus, encoder: str) -> list[str | Path]:
    """Return the command that trains an encoder on the corpus: on its paired texts if it has any,
    by documents if enough of them have two sentences, in batches no larger than the corpus."""
    from pipelines.preparing.hold_out import LEAST_HELD_OUT
    from pipelines.recipes import RECIPES

    documents = corpus.manifest.get("documents", {"one_sentence": len(corpus)})
    recipe, rows = "documents", len(corpus) - documents["one_sentence"]
    if rows < RECIPES[recipe]().batch_size:
        recipe, rows = "simcse-base", len(corpus)
    if "negative" in corpus.columns:  # triples, which may have been recognized
        recipe = "simcse-supervised"
    elif corpus.columns:
        recipe, rows = "denosent-base", len(corpus)
    words: list[str | Path] = ["train", recipe, "--corpus", corpus.path, "--encoder", encoder]
    words += batch_words(recipe, rows)
    if recipe == "documents" and corpus.manifest.get("held_out", 0) >= LEAST_HELD_OUT:
        words += ["--set", "dev=own"]  # the held-out documents choose the step
    return [*words, "--output", free_folder("runs/mine")]


def batch_words(recipe: str, rows: int) -> list[str]:
    """Return the option with which a recipe trains on few rows; nothing if they are enough."""
    from pipelines.recipes import RECIPES

    few = rows < RECIPES[recipe]().batch_size
    return ["--batch-size", str(max(2, rows // 2))] if few else []


def prepare_again(corpus: Corpus, encoder: Path, output: str) -> list[str | Path]:
    """Return the command that prepares a corpus for another encoder, from the same input with the
    same options; the texts of an augmented corpus are taken from itself."""
    manifest = corpus.manifest
    source, documents = manifest["source"], manifest.get("documents", {})
    values = {**source, **source["cleaning"], "max_length": manifest["max_length"]}
    values |= {"documents": documents.get("by"), "hold_out": manifest.get("held_out")}
    if "augmentation" in manifest:
        by = "column:document" if corpus.has_documents else None
        values = {"inputs": [str(corpus.path)], "augmented_column": "augmented_text"}
        values |= {"max_length": manifest["max_length"], "documents": by}
    words: list[str | Path] = ["prepare"]
    for option in declared(PrepareOptions):
        value = values.get(option.field)
        if value in (None, [], 0, option.default):
            continue
        shown = value if isinstance(value, list) else [value]
        if option.option.convert is comma_names:
            shown = [",".join(shown)]
        words += [f"--{option.name}", *([] if value is True else map(str, shown))]
    return [*words, "--encoder", encoder, "--output", output]


def rows_table(result: dict[str, Any]) -> str:
    """Return a table for a terminal of the rows that were read: kept, and dropped by reason."""
    from pipelines.preparing.report import row_counts

    return table(row_counts(result), ("rows", "number", "share"))
