"""The report of `cotbert augment`: outcomes of rows, lengths of the rewrites, and examples."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cotbert_core.files import write_text
from pipelines.augmenting.parts import first_of_each
from pipelines.reports import plots
from pipelines.reports.colours import BLUE, ORANGE
from pipelines.reports.html_page import page, table

# Number of examples of each outcome, over all parts.
SHOWN = 8


def outcomes(summary: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return (outcome, number of rows, share): rewritten, then the reasons for kept sources."""
    rows, kept = int(summary["rows"]), summary["source_kept"]
    counts = {"rewritten": int(summary["rewritten"])}
    counts |= {f"source kept: {reason}": n for reason, n in kept.items()}
    return [(name, f"{n:,}", f"{100 * n / rows:.1f} %") for name, n in counts.items()]


def write_report(path: Path, settings: Mapping[str, Any], summary: Mapping[str, Any]) -> None:
    """Write a job's report. settings: the manifest's entry."""
    counts = {k: v for k, v in settings["counts"].items() if k not in ("rewritten", "source_kept")}
    plain = {k: v for k, v in settings.items() if k != "counts"}
    # Numbers of sources and of rewrites with 0, 1, ..., max_length tokens, side by side.
    sources = [(tokens - 0.2, count) for tokens, count in enumerate(summary["source_lengths"])]
    rewrites = [(tokens + 0.2, count) for tokens, count in enumerate(summary["lengths"])]
    lengths = {"sources": (BLUE, sources), "rewrites": (ORANGE, rewrites)}
    ordered = sorted(summary["examples"], key=lambda row: row[0] != "rewritten")
    examples = first_of_each(ordered, SHOWN)
    sections = [
        ("Outcome of the rows", table(("outcome", "rows", "share"), outcomes(summary))),
        ("Counts", table(("", ""), list(counts.items()), "text")),
        ("Tokens of a text, after truncation", plots.histogram(lengths, 0.4, "tokens", "texts")),
        ("Examples", table(("outcome", "text", "rewrite"), list(examples), "text")),
        ("Settings", table(("setting", "value"), list(plain.items()), "text")),
    ]
    write_text(path, page(f"Augmented by {settings['method']}", "A cotbert job.", sections))
