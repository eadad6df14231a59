"""The summary of an adaptation, for the terminal and a page."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from cotbert_core.evaluation.passages import PASSAGE_WORDS
from cotbert_core.files import write_text
from cotbert_core.messages.redaction import without_credentials
from pipelines.adapting.choosing import MERGED, UNTOUCHED
from pipelines.adapting.found_plot import found_plot
from pipelines.adapting.job_record import CORPUS, MODEL
from pipelines.adapting.options import AdaptOptions
from pipelines.adapting.outcome import (
    DOCUMENTS,
    SENTENCES,
    TABLE_HEADER,
    chosen_by,
    own_text,
    table_rows,
    trial_rows,
    trials_header,
)
from pipelines.adapting.sentences import AVERAGE, sentences
from pipelines.evaluating.changed_queries import HEADER, changed_rows, changed_sentence
from pipelines.evaluating.options import LABEL_COLUMN
from pipelines.evaluating.scoring import (
    FOUND_FIRST,
    PASSAGES,
    PASSAGES_WITH_KEYWORDS,
    SAME_LABEL,
    WITH_KEYWORDS,
)
from pipelines.reading.columns import idle_options
from pipelines.reading.documents import COLUMN, FILE, PARAGRAPH
from pipelines.reports import html_page
from pipelines.runtime.ending import (
    REPORT_FILE,
    free_folder,
    places,
    reading_words,
    rows_again,
)
from pipelines.runtime.progress import clock, table
from pipelines.tuning.tables import error_lines

# The page, in the output folder, that shows what became of the rows.
CORPUS_REPORT = f"{CORPUS}/{REPORT_FILE}"
# The searches that are compared; of equal ones the first, which costs less.
_SEARCHES = (FOUND_FIRST, WITH_KEYWORDS, PASSAGES, PASSAGES_WITH_KEYWORDS)


def summary(result: Mapping[str, Any], options: AdaptOptions, output: Path) -> str:
    """Return the text for the terminal: what was gained, the tables, and what to type next."""
    return "\n".join(
        [
            *sentences(result),
            "",
            table(table_rows(result), TABLE_HEADER),
            "",
            table(trial_rows(result), trials_header(result)),
            *error_lines(result["trials"]),
            "",
            f"rows: {_rows(result)} ({output / CORPUS_REPORT})",
            *_rows_note(options),
            places(output, *next_commands(result, options, output)),
        ]
    )


def _rows(result: Mapping[str, Any]) -> str:
    """Return what became of the rows, in the words of `prepare`."""
    return ", ".join(f"{number:,} {what}" for what, number in result["rows"].items())


def _rows_note(options: AdaptOptions) -> list[str]:
    """Return a note if documents consist of several rows, since `embed` embeds each row."""
    if not options.read_as.startswith(COLUMN):
        return []
    column = options.read_as.removeprefix(COLUMN)
    return [
        f"note: the next commands embed and search rows; for one vector for each {column!r}, join "
        "its rows first ('What a document is' in docs/adapting.md)"
    ]


def next_commands(
    result: Mapping[str, Any], options: AdaptOptions, output: Path
) -> list[tuple[str | Path, ...]]:
    """Return the commands that embed the user's rows and search them, by passages and with keywords
    if they find more. `embed` cannot read docstrings."""
    scores = {name: row["after"] for name, row in result["table"].items()}
    best = max((name for name in _SEARCHES if name in scores), key=scores.__getitem__, default=None)
    rows: tuple[str, ...] = ("YOUR.txt",)
    reading: tuple[str, ...] = ()
    if not options.reads_docstrings:
        idle = idle_options(options.inputs) if options.labelled else set()
        column = "text" if "text_column" in idle else options.text_column
        rows, reading = rows_again(options.inputs, column), _reading(options, idle)
    if best in (PASSAGES, PASSAGES_WITH_KEYWORDS):
        reading += ("--passages", str(PASSAGE_WORDS))
    keywords = ("--keywords",) if best in (WITH_KEYWORDS, PASSAGES_WITH_KEYWORDS) else ()
    vectors = free_folder("runs/vectors")
    return [
        ("embed", output / MODEL, "--input", *rows, *reading, "--output", vectors),
        ("search", vectors, "YOUR QUERY", *keywords, "--text", *rows),
    ]


def _reading(options: AdaptOptions, idle: Collection[str]) -> tuple[str, ...]:
    """Return the options by which `embed` reads the rows that were prepared."""
    names = (name for name in ("encoding", "delimiter") if name not in idle)
    found = reading_words({name: getattr(options, name) for name in names})
    if options.clean.steps:
        found += ("--clean", ",".join(options.clean.steps))
    if options.documents == FILE:
        found += ("--documents", FILE)
    return found + ("--wrapped",) * (options.wrapped or options.documents == PARAGRAPH)


def write_adapt_report(path: Path, result: Mapping[str, Any], options: AdaptOptions) -> None:
    """Write report.html."""
    said = html_page.paragraphs(sentences(result))
    documents, own = result["documents"], own_text(result)
    searched = [_SEARCHED[own]] if FOUND_FIRST in result["table"] else []
    names = (*_SHOWN, *(("labelled",) if options.labelled else ()))
    settings = {name: without_credentials(getattr(options, name)) for name in names}
    settings["documents"] = options.read_as
    if options.labelled:
        settings["label_column"] = options.label_column or LABEL_COLUMN
    below = [*error_lines(result["trials"]), *([_AVERAGED] if MERGED in result["dev"] else [])]
    notes = html_page.paragraphs(below, "note")
    sections = [
        (
            "What was gained",
            said
            + found_plot(result, result["models"])
            + html_page.table(TABLE_HEADER, table_rows(result))
            + html_page.paragraphs([" ".join([*searched, _PROOFS[chosen_by(result)]])], "note")
            + html_page.paragraphs((f"Note: {note}." for note in result["notes"]), "note"),
        ),
        *changed_section(result),
        ("Candidates", html_page.table(trials_header(result), trial_rows(result)) + notes),
        (own.capitalize(), html_page.table(("", ""), _own_rows(result), "text")),
        ("Settings", html_page.table(("setting", "value"), list(settings.items()), "text")),
    ]
    sentences_of = f"{result['sentences']:,} sentences"
    if own == DOCUMENTS:
        sentences_of = f"{documents['documents']:,} documents ({sentences_of})"
    seconds = result["seconds"]  # None: the job was interrupted and continued
    took = "" if seconds is None else f" in {clock(seconds)}"
    what = "tried on" if result["chosen"] == UNTOUCHED else "adapted to"
    note = f"{result['encoder']}, {what} {sentences_of}{took}."
    write_text(path, html_page.page("Adaptation", note, sections))


def _own_rows(result: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the table of the user's documents or sentences: what was trained on and held out."""
    found, own = result["documents"], own_text(result)
    rows: list[tuple[str, Any]] = [("rows", f"{_rows(result)} ({CORPUS_REPORT})")]
    if own == DOCUMENTS:
        kind, _, column = found["by"].partition(":")
        rows.append(("a document", f"the rows with the same {column}" if column else f"a {kind}"))
    rows += [(_COUNTED[key].format(own=own), found[key]) for key in _COUNTED if key in found]
    if tested := result["models"][UNTOUCHED].get(FOUND_FIRST):  # none with labels alone
        rows.append(("test queries", tested["queries"]))
        if own == DOCUMENTS:
            rows.append(("documents of the test queries", tested["documents"]))
    return rows


def changed_section(result: Mapping[str, Any]) -> list[html_page.Section]:
    """Return a section with queries that the untouched encoder or the new one alone finds first."""
    if not (changed := result["changed_queries"]):
        return []
    queries = result["models"][result["chosen"]][FOUND_FIRST]["queries"]
    said = html_page.paragraphs([changed_sentence(changed, queries)])
    return [("Queries that changed", said + html_page.table(HEADER, changed_rows(changed), "text"))]


_AVERAGED = f"{MERGED}: the {AVERAGE}."
_SHOWN = (
    *("encoder", "documents", "query", "max_steps", "batch_size", "learning_rate", "pretrain"),
    *("seed", "workers"),
)
# The words for the counts of a corpus's manifest.
_COUNTED = {
    "documents": "{own} to train on",
    "one_sentence": "of these with a single sentence",
    "held_out": "held out",
}
_SEARCHED = {
    DOCUMENTS: "A sentence of each held-out document is searched among all held-out documents; "
    "none of them was trained on.",
    SENTENCES: "The second half of each held-out sentence is searched with the first among all "
    "second halves; none of these sentences was trained on.",
}
_PROOFS = {
    FOUND_FIRST: "Half of these queries chose the encoder, the other half gave this table; an "
    "encoder that is no better by them than the untouched one is not handed back. "
    "Intervals: 95 %, paired bootstrap over the queries, those of a document together.",
    SAME_LABEL: "Half of the labelled texts chose the encoder, the other half gave their row of "
    "this table; an encoder that is not better by them beyond chance is not handed back, so a "
    "gain only just beyond chance looks larger than it is. No training saw a label. Intervals: "
    "95 %, paired bootstrap over the texts, or over the queries, those of a document together.",
}
