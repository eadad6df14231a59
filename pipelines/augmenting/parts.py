"""Add rewrites to a part of a corpus: complete the ledger, then check, tokenize and write all rows.

The counts of a part are written to the scratch folder before the part is renamed into place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cotbert_core.files import write_json
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.templates.tokenizing import PlainTokenizer
from pipelines.augmenting.ledger import Rewrite, RewriteLedger, open_ledger
from pipelines.augmenting.options import Limits
from pipelines.augmenting.rewrite_filter import fault
from pipelines.cleaning.steps import control
from pipelines.reading.parquet_batches import read_table
from pipelines.reading.pieces import PIECE_ROWS
from pipelines.storage.corpus import PLACES, corpus_table, ragged_column
from pipelines.storage.resumable_output import atomic_file

# Number of examples of each outcome that a part contributes to the report.
EXAMPLES = 3
QUOTES = ('""', "\u201c\u201d", "\u00ab\u00bb", "\u300c\u300d")
Row = TypeVar("Row", bound=Sequence[Any])
Report = Callable[[int], None]


class Rewriter(Protocol):
    """A method of rewriting."""

    def rewrite(
        self, texts: Mapping[int, str], done: Mapping[int, Rewrite]
    ) -> Iterator[list[Rewrite]]:
        """Yield lists of rewrites of the `texts` (by id) that are not in `done`."""


@dataclass(frozen=True)
class PartPlan:
    """Settings that are the same for all parts.

    corpus, output: folders of the parts to read and to write. scratch: folder of their ledgers and
    counts. names: the parts' file names. tokenizer_json, max_length: of the corpus. by_model:
    whether a language model writes the rewrites. documents: whether the corpus has documents.
    """

    corpus: Path
    output: Path
    scratch: Path
    names: tuple[str, ...]
    tokenizer_json: str
    max_length: int
    limits: Limits
    by_model: bool
    documents: bool = False

    def ledger(self, name: str) -> Path:
        return self.scratch / f"{Path(name).stem}.jsonl"

    def counts(self, name: str) -> Path:
        return self.scratch / f"{Path(name).stem}.counts.json"

    def is_finished(self, name: str) -> bool:
        return (self.output / name).is_file()


def augment_part(plan: PartPlan, name: str, rewriter: Rewriter, report: Report) -> bool:
    """Write the part `name`; return False if the rewriter left out rows, so that it stays open.

    report: called with numbers of stored rewrites.
    """
    columns = ["id", "text", "input_ids", *(PLACES if plan.documents else ())]
    table = read_table(plan.corpus / name, columns)
    texts = dict(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))
    with open_ledger(plan.ledger(name)) as ledger:
        _fill(ledger, texts, rewriter, report)
        if any(number not in ledger.rows for number in texts):
            return False
        part, summary = with_rewrites(plan, table, ledger.rows)
        with atomic_file(plan.output / name, plan.scratch) as partial:
            pq.write_table(part, partial, compression="zstd", row_group_size=PIECE_ROWS)
            write_json(plan.counts(name), summary)
    return True


def _fill(
    ledger: RewriteLedger, texts: Mapping[int, str], rewriter: Rewriter, report: Report
) -> None:
    """Add the missing rewrites to the ledger, each before the next is awaited."""
    if all(number in ledger.rows for number in texts):
        return
    for rewrites in rewriter.rewrite(texts, ledger.rows):
        ledger.add(rewrites)
        report(len(rewrites))


def with_rewrites(
    plan: PartPlan, table: pa.Table, rewrites: Mapping[int, Rewrite]
) -> tuple[pa.Table, dict[str, Any]]:
    """Return the part with its rewrites, and its counts, lengths and examples.

    A rewrite that the filter rejects is replaced by its source.
    """
    tokenizer = PlainTokenizer(plan.tokenizer_json)
    sources = table["text"].to_pylist()
    given = [rewrites[number] for number in table["id"].to_pylist()]
    texts = [
        _clean(source, rewrite.text or "", plan.by_model)
        for source, rewrite in zip(sources, given, strict=True)
    ]
    # One token more than the part will have, to know which texts are truncated.
    tokens = tokenizer(texts, plan.max_length + 1)
    fates = [
        _fate(plan, source, rewrite, text) or (None if length else "no_tokens")
        for source, rewrite, text, length in zip(sources, given, texts, tokens.lengths, strict=True)
    ]
    first = ragged_column(table["input_ids"])
    kept = np.array([fate is None for fate in fates], bool)
    chosen = [text if ok else source for text, source, ok in zip(texts, sources, kept, strict=True)]
    # The tokens of sources come from the corpus.
    lists = Ragged.from_lists([tokens[n] if ok else first[n] for n, ok in enumerate(kept)])
    part = corpus_table(
        table["id"].combine_chunks(),
        [table["text"].combine_chunks(), pa.array(chosen, pa.string())],
        [first, lists.cut(plan.max_length)],
        [table[name].combine_chunks() for name in PLACES if plan.documents],
    )
    summary = _summary(plan, given, fates, tokens.lengths[kept], first.lengths)
    accepted = Counter(text for text, ok in zip(texts, kept, strict=True) if ok)
    summary["repeated"] = sum(number for number in accepted.values() if number > 1)
    summary["examples"] = _examples(sources, given, fates)
    return part, summary


def _clean(source: str, text: str, by_model: bool) -> str:
    """Return a rewrite without control characters, and with white space folded as in a prepared
    corpus; a model's without enclosing quotation marks."""
    text = control(text)
    return " ".join((_unquoted(source, text) if by_model else text).split())


def _unquoted(source: str, answer: str) -> str:
    """Return a model's answer without enclosing quotation marks."""
    answer = answer.strip()
    for marks in QUOTES:
        around = len(answer) > 2 and answer[0] + answer[-1] == marks
        if around and answer[0] not in source and marks[0] not in answer[1:-1]:
            return answer[1:-1]
    return answer


def _fate(plan: PartPlan, source: str, rewrite: Rewrite, text: str) -> str | None:
    if rewrite.text is None:
        return rewrite.failure
    # The filter checks for line breaks, which are only in the unfolded answer.
    shown = rewrite.text if plan.by_model else text
    return fault(source, shown, plan.limits, by_model=plan.by_model)


def _summary(
    plan: PartPlan,
    given: list[Rewrite],
    fates: list[str | None],
    lengths: np.ndarray,
    before: np.ndarray,
) -> dict[str, Any]:
    """Return a part's counts. lengths, before: (N,) tokens of accepted rewrites and of sources."""
    longest = plan.max_length
    return {
        "rows": len(given),
        "rewritten": sum(fate is None for fate in fates),
        "source_kept": dict(Counter(fate for fate in fates if fate is not None)),
        "truncated": int((lengths > longest).sum()),
        "inputs_cut": sum(rewrite.cut for rewrite in given),
        "tokens_in": sum(rewrite.tokens_in for rewrite in given),
        "tokens_out": sum(rewrite.tokens_out for rewrite in given),
        "lengths": _histogram(lengths, longest),
        "source_lengths": _histogram(before, longest),
    }


def _histogram(lengths: np.ndarray, longest: int) -> list[int]:
    """Return the number of texts with 0, 1, ..., `longest` or more tokens."""
    return list(np.bincount(np.minimum(lengths, longest), minlength=longest + 1).tolist())


def _examples(
    sources: list[str], given: list[Rewrite], fates: list[str | None]
) -> list[tuple[str, str, str]]:
    """Return (outcome, source, rewrite) of the first EXAMPLES rows of each outcome."""
    rows = zip(fates, sources, given, strict=True)
    return [
        (fate or "rewritten", source[:300], (rewrite.text or "")[:300])
        for fate, source, rewrite in first_of_each(rows, EXAMPLES)
    ]


def first_of_each(rows: Iterable[Row], most: int) -> Iterator[Row]:
    """Yield the first `most` rows with each value in their first column."""
    seen: Counter[Any] = Counter()
    for row in rows:
        seen[row[0]] += 1
        if seen[row[0]] <= most:
            yield row
