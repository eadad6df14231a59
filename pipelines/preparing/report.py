"""The report of a prepared corpus: its rows by outcome, and the lengths of the sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cotbert_core.errors import counted
from cotbert_core.files import write_text
from pipelines.reports import plots
from pipelines.reports.colours import BLUE, ORANGE
from pipelines.reports.html_page import page, table

_DROPPED = "dropped_"
# Bins of the number of sentences of a document.
_SIZES = ((1, 1), (2, 2), (3, 5), (6, 10), (11, 20), (21, 100), (101, 1 << 62))


def row_counts(result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return (outcome, number, share of all rows) of the rows of `row_numbers`."""
    whole = result["rows_read"] + result.get("added", 0)
    return [(what, f"{n:,}", _share(n, whole)) for what, n in row_numbers(result).items()]


def row_numbers(result: Mapping[str, Any]) -> dict[str, int]:
    """Return the numbers of the rows read, added by splitting, kept, and dropped by reason, the
    most frequent first."""
    dropped = {k.removeprefix(_DROPPED): n for k, n in result.items() if k.startswith(_DROPPED)}
    added = result.get("added", 0)
    lines = [("read", result["rows_read"])]
    lines += [("added by splitting", added)] if added else []
    lines.append(("kept", result["rows"]))
    lines += sorted(dropped.items(), key=lambda item: (-item[1], item[0]))
    if result["sampled_out"]:
        lines.append(("sampled out", result["sampled_out"]))
    return dict(lines)


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else ""


def write_corpus_report(
    path: Path, manifest: Mapping[str, Any], lengths: Sequence[int], sizes: Mapping[int, int]
) -> None:
    """Write the report.

    lengths: number of sentences with 0, 1, ..., max_length and more tokens. sizes: number of
    documents with 1, 2, ... sentences.
    """
    flat = {**manifest, **{f"{_DROPPED}{k}": n for k, n in manifest["dropped"].items()}}
    made = {
        **{key: manifest[key] for key in ("encoder", "tokenizer_hash", "max_length", "tokens")},
        **manifest["source"],
        **manifest["source"].get("cleaning", {}),
        "texts changed": ", ".join(
            f"{step} {n:,}" for step, n in manifest.get("changed", {}).items()
        ),
    }
    made.pop("cleaning", None)
    shown = [(key, value) for key, value in made.items() if value not in (None, "", [])]
    sections = [
        ("Rows", table(("rows", "number", "share"), row_counts(flat))),
        ("Length of the sentences", length_histogram(lengths)),
        ("Made from", table(("", ""), shown, "text")),
    ]
    if rows := document_counts(manifest, sizes):
        sections.insert(1, ("Documents", table(("documents", "number"), rows)))
    if warnings := manifest.get("warnings"):
        sections.insert(1, ("Warnings", table(("",), [(line,) for line in warnings], "text")))
    note = f"{counted(manifest['rows'], 'sentence')}, {counted(manifest['tokens'], 'token')}."
    write_text(path, page("A prepared corpus", note, sections))


def document_counts(manifest: Mapping[str, Any], sizes: Mapping[int, int]) -> list[tuple[str, str]]:
    """Return (label, number) of the documents by number of sentences, and of held-out queries."""
    rows = [("documents", sum(sizes.values()))] if sizes else []
    for first, last in _SIZES:
        upto = min(last, max(sizes, default=0))
        number = sum(count for size, count in sizes.items() if first <= size <= last)
        if number:
            what = f"{first}" if first == upto else f"{first} to {upto}"
            rows.append((f"of {what} sentence{'s' if upto > 1 else ''}", number))
    if "held_out" in manifest:
        rows.append(("held out, half for dev and half for test", manifest["held_out"]))
    return [(what, f"{number:,}") for what, number in rows]


def length_histogram(lengths: Sequence[int]) -> str:
    """Return a histogram of sentence lengths in tokens; the last bar is the truncated ones."""
    longest = len(lengths) - 2
    bars = list(enumerate(lengths))
    return plots.histogram(
        {"whole": (BLUE, bars[:-1]), "cut": (ORANGE, bars[-1:])},
        0.9,
        f"tokens; the last bar: more than {longest}, cut to {longest}",
        "sentences",
        {longest + 1: f"more than {longest}"},
    )
