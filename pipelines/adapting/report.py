"""The summary of an adaptation, for the terminal and a page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cotbert_core.evaluation.passages import PASSAGE_WORDS
from cotbert_core.files import write_text
from pipelines.adapting.options import AdaptOptions
from pipelines.adapting.outcome import (
    TABLE_HEADER,
    TRIALS_HEADER,
    sentences,
    table_rows,
    trial_rows,
)
from pipelines.evaluating.scoring import PASSAGES
from pipelines.reports import html_page
from pipelines.runtime.ending import places
from pipelines.runtime.progress import clock, table


def summary(result: Mapping[str, Any], output: Path) -> str:
    """Return the text for the terminal: what was gained, the tables, and what to type next."""
    return "\n".join(
        [
            *sentences(result),
            "",
            table(table_rows(result), TABLE_HEADER),
            "",
            table(trial_rows(result), TRIALS_HEADER),
            "",
            places(output, _embed_command(result, output)),
        ]
    )


def _embed_command(result: Mapping[str, Any], output: Path) -> tuple[str | Path, ...]:
    """Return the words that embed the user's texts, by passages if the documents are long."""
    passages = ("--passages", str(PASSAGE_WORDS)) if PASSAGES in result["table"] else ()
    vectors = ("--output", "runs/vectors")
    return ("embed", output / "model", "--input", "YOUR.txt", *passages, *vectors)


def write_adapt_report(path: Path, result: Mapping[str, Any], options: AdaptOptions) -> None:
    """Write report.html."""
    said = html_page.paragraphs(sentences(result))
    documents = result["documents"]
    settings = [(name, getattr(options, name)) for name in _SHOWN]
    sections = [
        (
            "What was gained",
            said
            + html_page.table(TABLE_HEADER, table_rows(result))
            + html_page.paragraphs([_PROOF], "note"),
        ),
        ("Candidates", html_page.table(TRIALS_HEADER, trial_rows(result))),
        ("Documents", html_page.table(("", ""), list(documents.items()), "text")),
        ("Settings", html_page.table(("setting", "value"), settings, "text")),
    ]
    note = (
        f"{result['encoder']}, adapted to {documents['documents']:,} documents "
        f"({result['sentences']:,} sentences) in {clock(result['seconds'])}."
    )
    write_text(path, html_page.page("Adaptation", note, sections))


_SHOWN = (
    *("encoder", "documents", "query", "max_steps", "batch_size", "learning_rate", "pretrain"),
    *("seed", "workers"),
)
_PROOF = (
    "A sentence of each held-out document is searched among all held-out documents; none of them "
    "was trained on. Half of these queries chose the encoder, the other half gave this table; an "
    "encoder that is no better by them than the untouched one is not handed back. "
    "Intervals: 95 %, paired bootstrap over the queries."
)
