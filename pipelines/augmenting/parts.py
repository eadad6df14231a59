"""A part of a corpus to the same part with rewrites: what the ledger lacks is asked for, then all
rows are judged, tokenized and written.

A part has its name only when it is whole, and its counts lie in the scratch folder by then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cotbert_core.files import read_json, write_json
from cotbert_core.templates.tokenizing import PlainTokenizer
from pipelines.augmenting.ledger import Rewrite, RewriteLedger, open_ledger
from pipelines.augmenting.options import Limits
from pipelines.augmenting.rewrite_filter import fault
from pipelines.reading.parquet_batches import read_table
from pipelines.reading.pieces import PIECE_ROWS
from pipelines.storage.corpus import corpus_table, ragged_column
from pipelines.storage.resumable_output import atomic_file

# Of each fate of a row, for the report.
EXAMPLES = 3
QUOTES = ('""', "\u201c\u201d", "\u00ab\u00bb", "\u300c\u300d")
Tell = Callable[[list[Rewrite]], None]


class Rewriter(Protocol):
    """Either way of rewriting."""

    def rewrite(
        self, texts: Mapping[int, str], done: Mapping[int, Rewrite]
    ) -> Iterator[list[Rewrite]]:
        """The rewrites of all `texts` (by id) that are not `done`, some at a time."""


@dataclass(frozen=True)
class PartPlan:
    """What is the same for all parts. output, scratch: folders of the parts, and of their ledgers
    and counts; names: the parts' file names; tokenizer_json, max_length: the corpus's own;
    by_model: whether a language model writes."""

    corpus: str
    output: str
    scratch: str
    names: tuple[str, ...]
    tokenizer_json: str
    max_length: int
    limits: Limits
    by_model: bool

    def ledger(self, name: str) -> Path:
        return Path(self.scratch) / f"{Path(name).stem}.jsonl"

    def counts(self, name: str) -> Path:
        return Path(self.scratch) / f"{Path(name).stem}.counts.json"

    def is_finished(self, name: str) -> bool:
        return (Path(self.output) / name).is_file()


def augment_part(plan: PartPlan, name: str, rewriter: Rewriter, tell: Tell) -> dict[str, Any]:
    """Write the part `name` and return its counts. `tell` gets rewrites once they are kept."""
    table = read_table(Path(plan.corpus) / name, ["id", "text", "input_ids"])
    texts = dict(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))
    with open_ledger(plan.ledger(name)) as ledger:
        _fill(ledger, texts, rewriter, tell)
        part, summary = judged(plan, table, ledger.rows)
        with atomic_file(Path(plan.output) / name, Path(plan.scratch)) as partial:
            pq.write_table(part, partial, compression="zstd", row_group_size=PIECE_ROWS)
            write_json(plan.counts(name), summary)
    return summary


def _fill(ledger: RewriteLedger, texts: Mapping[int, str], rewriter: Rewriter, tell: Tell) -> None:
    """Ask for what the ledger lacks, and keep each answer before the next is waited for."""
    if all(number in ledger.rows for number in texts):
        return
    for rewrites in rewriter.rewrite(texts, ledger.rows):
        ledger.add(rewrites)
        tell(rewrites)


def read_counts(plan: PartPlan, name: str) -> dict[str, Any]:
    """What `augment_part` returned of a finished part."""
    summary: dict[str, Any] = read_json(plan.counts(name))
    return summary


def judged(
    plan: PartPlan, table: pa.Table, rewrites: Mapping[int, Rewrite]
) -> tuple[pa.Table, dict[str, Any]]:
    """The part with its rewrites, and its counts, lengths and examples.

    A rewrite that is not fit is replaced by its source.
    """
    tokenizer = PlainTokenizer(plan.tokenizer_json)
    sources = table["text"].to_pylist()
    given = [rewrites[number] for number in table["id"].to_pylist()]
    texts = [
        _folded(_unquoted(source, rewrite.text or "") if plan.by_model else rewrite.text or "")
        for source, rewrite in zip(sources, given, strict=True)
    ]
    fates = [_fate(plan, *row) for row in zip(sources, given, texts, strict=True)]
    # One token more than is kept, to know which were cut.
    tokens = tokenizer(texts, plan.max_length + 1)
    fates = [
        "no_tokens" if fate is None and not length else fate
        for fate, length in zip(fates, tokens.lengths, strict=True)
    ]
    first = ragged_column(table["input_ids"])
    kept = np.array([fate is None for fate in fates])
    chosen = [text if ok else source for text, source, ok in zip(texts, sources, kept, strict=True)]
    # The source's tokens are those that the corpus holds, not made again.
    both = [tokens[n] if ok else first[n] for n, ok in enumerate(kept)]
    lists = type(first).from_lists(both)
    part = corpus_table(
        table["id"].combine_chunks(),
        [table["text"].combine_chunks(), pa.array(chosen, pa.string())],
        [first, lists.cut(plan.max_length)],
    )
    summary = _summary(plan, given, fates, tokens.lengths[kept], first.lengths)
    summary["examples"] = _examples(sources, given, fates)
    return part, summary


def _folded(text: str) -> str:
    """White space folded as in a prepared corpus; what no file can hold replaced."""
    return " ".join(text.encode(errors="replace").decode().split())


def _unquoted(source: str, answer: str) -> str:
    """A model's answer without the quotation marks that it put around all of it."""
    answer = answer.strip()
    for marks in QUOTES:
        around = len(answer) > 2 and answer[0] + answer[-1] == marks
        if around and answer[0] not in source and marks[0] not in answer[1:-1]:
            return answer[1:-1]
    return answer


def _fate(plan: PartPlan, source: str, rewrite: Rewrite, text: str) -> str | None:
    if rewrite.text is None:
        return rewrite.failure
    # Line breaks are still in the answer itself.
    shown = rewrite.text if plan.by_model else text
    return fault(source, shown, plan.limits, by_model=plan.by_model)


def _summary(
    plan: PartPlan,
    given: list[Rewrite],
    fates: list[str | None],
    lengths: np.ndarray,
    before: np.ndarray,
) -> dict[str, Any]:
    """Counts of a part. lengths: tokens of the rewrites that stay; before: of the sources."""
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
    """How many texts have 0, 1, ... `longest` tokens; longer ones are with the last."""
    counts: list[int] = np.bincount(np.minimum(lengths, longest), minlength=longest + 1).tolist()
    return counts


def _examples(
    sources: list[str], given: list[Rewrite], fates: list[str | None]
) -> list[tuple[str, str, str]]:
    """(fate, source, rewrite) of the first few rows of each fate."""
    seen: Counter[str] = Counter()
    examples = []
    for source, rewrite, fate in zip(sources, given, fates, strict=True):
        name = fate or "rewritten"
        seen[name] += 1
        if seen[name] <= EXAMPLES:
            examples.append((name, source[:300], (rewrite.text or "")[:300]))
    return examples
