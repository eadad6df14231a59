"""cotbert prepare: turn text of many formats into a corpus of distinct, tokenized sentences.

A row may have paired texts: a text of the same meaning, and one that only looks similar.

It makes two passes of Ray Data tasks over the input's shards. The first reads and cleans, and
writes scratch files of the rows and of their ids, which are hashes of their texts; from the ids the
driver finds every duplicate, on disk. The second tokenizes the rows that stay and writes the parts.
The result depends on the input only, not on the number of workers, the order in which files were
named or how often the job was killed: the same command continues an unfinished job.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from cotbert_core.encoder.backbone import load_tokenizer
from cotbert_core.encoder.locations import short_name
from cotbert_core.encoder.row_limits import check_max_length
from cotbert_core.errors import UserError, counted
from cotbert_core.files import read_json, write_json
from cotbert_core.templates.vocabulary_fit import vocabulary_warnings
from pipelines.cleaning.cleaner import Cleaner
from pipelines.preparing import driver
from pipelines.preparing.exclusion import read_exclusion
from pipelines.preparing.manifest import CorpusJob, cleaning, corpus_manifest, corpus_result
from pipelines.preparing.options import PrepareOptions, recognise_triples
from pipelines.preparing.scratch_files import DROPPED, LENGTH
from pipelines.preparing.shard_tasks import Rules
from pipelines.preparing.token_bounds import EarlyBounds
from pipelines.reading import sources
from pipelines.reading.bad_rows import reasons_of, with_prefix
from pipelines.reading.columns import check_reading
from pipelines.reading.documents import check_documents
from pipelines.reading.lost_rows import found_notes
from pipelines.reading.pieces import PIECE_ROWS
from pipelines.recording.tracking import resumable_run
from pipelines.runtime.ending import REPORT_FILE
from pipelines.runtime.progress import say, say_warnings
from pipelines.runtime.ray_session import ray_session
from pipelines.runtime.shard_tasks import runs_alone
from pipelines.runtime.shared_storage import on_all_nodes
from pipelines.storage.corpus import MANIFEST_FILE
from pipelines.storage.output_folder import RESULT_FILE, require_empty
from pipelines.storage.resumable_output import ResumableOutput, resumable_output, versions

# Bytes of input that this process prepares in 8 s, or in half a minute if they are compressed: Ray
# takes 9 s to start.
FEW_BYTES = 8 << 20


def prepare(options: PrepareOptions, output: Path, parent: str | None = None) -> dict[str, Any]:
    """Write the corpus folder `output` and return its result; UserError for a bad input.

    A killed job of the same input and options is continued.
    """
    output = require_empty(output)
    job = check_input(options)
    record = _record(job)
    with (
        on_all_nodes(output, job.plan.files),
        resumable_output(output, record) as work,
    ):
        if work.before:
            _show_finished(len(job.plan.shards), work)
        if (work.output / RESULT_FILE).is_file():  # killed before the folder got its name
            return dict(read_json(work.output / RESULT_FILE))
        return _run(job, work, parent)


def check_input(options: PrepareOptions) -> CorpusJob:
    """Return what is to be prepared; UserError for an input or an option that will not do."""
    options = recognise_triples(options)
    plan = sources.plan(
        options.inputs,
        options.text_column,
        paired_columns=options.paired_columns,
        encoding=options.encoding,
        documents=options.documents,
        delimiter=options.delimiter,
        limit=options.limit,
        wrapped=options.wrapped,
        keep_paragraphs=options.clean.split is not None,
    )
    check_reading(plan, (*options.exclude, *([options.labelled] if options.labelled else [])))
    if options.documents:
        check_documents(plan, options.clean.split is not None)
    cleaner = Cleaner(options.clean, len(plan.paired_columns))
    excluded = read_exclusion(options.exclude, options.delimiter, plan.encoding, options.clean)
    tokenizer = load_tokenizer(options.encoder)
    check_max_length(options.max_length, options.encoder, tokenizer)
    bounds, early, hold_out = options.clean, None, options.hold_out is not None
    near = options.near_duplicates
    chooses = options.documents or hold_out or options.sample or near is not None
    if chooses and (bounds.min_tokens or bounds.max_tokens):
        early = EarlyBounds(tokenizer.json, bounds)
    rules = Rules(options.on_invalid, cleaner, excluded, near, hold_out, early)
    return CorpusJob(options, plan, rules, tokenizer)


def _record(job: CorpusJob) -> dict[str, Any]:
    """Return everything that decides what is written; the order of the files does not matter."""
    options = job.options
    return {
        "job": "prepare",
        "options": {
            **vars(options),
            "inputs": sorted(set(options.inputs)),
            "exclude": sorted(set(options.exclude)),
            "clean": vars(options.clean),
        },
        "tokenizer": job.tokenizer.hash,
        "excluded": hashlib.sha256(b"".join(sorted(job.rules.excluded))).hexdigest()[:16],
        "files": job.stamps,
        "shards": hashlib.sha256(repr(job.plan.shards).encode()).hexdigest()[:16],
        "part_rows": [driver.PART_ROWS, driver.UNIT_ROWS, PIECE_ROWS],
        "versions": versions(),
    }


def _show_finished(count: int, work: ResumableOutput) -> None:
    shards = len(driver.finished(work.scratch, "[0-9]*.json"))
    parts = len(driver.finished(work.scratch, "part-*.json"))
    and_parts = f" and {counted(parts, 'part')}" if parts else ""
    say(f"continuing {work.output.parent.parent}: {shards} of {count} shards{and_parts} are done")


def _run(job: CorpusJob, work: ResumableOutput, parent: str | None) -> dict[str, Any]:
    # The order of the files does not matter, as in the record.
    params = {**vars(job.options), **cleaning(job.options.clean)}
    params |= {name: tuple(sorted(set(params[name]))) for name in ("inputs", "exclude")}
    left_out = ("clean", "hold_out_fewer", "queries", "labelled")
    params = {k: v for k, v in params.items() if k not in left_out and v not in (None, ())}
    if job.options.hold_out is None:
        params.pop("query")
    about = f"Prepares {', '.join(job.options.inputs)} for {job.options.encoder}."
    with (
        resumable_run(work, "prepare", params, about, parent) as run,
        nullcontext() if runs_alone(job.stamps, most=FEW_BYTES) else ray_session(work.output),
    ):
        started, before = time.monotonic(), driver.rows_written(work)
        manifest = _write_corpus(job, work)
        fresh = manifest["rows"] - before
        result = corpus_result(manifest, fresh, time.monotonic() - started)
        run.result(result)
        for name in (MANIFEST_FILE, REPORT_FILE):
            run.artifact(work.output / name)
    run.write_result(work.output, result)
    return result


def _write_corpus(job: CorpusJob, work: ResumableOutput) -> dict[str, Any]:
    """Run both passes, write the manifest and the report, and return the manifest."""
    from pipelines.preparing.report import write_corpus_report  # it imports matplotlib

    options, plan = job.options, job.plan
    warnings = say_warnings(found_notes(plan, cleaned="markup" in options.clean.steps))
    first_pass = driver.read_shards(plan, job.stamps, job.rules, work)
    warnings += say_warnings(first_pass.lost.warnings())
    counts = first_pass.counts
    _require_rows(int(first_pass.kept.sum()), counts)  # before too few of none can be held out
    counts += driver.choose_rows(len(plan.shards), options, work)
    counts += driver.write_parts(job.tokenizer, options, first_pass.kept.tolist(), work)
    _require_rows(counts["rows"], counts)
    warnings += say_warnings(vocabulary_warnings(counts, short_name(options.encoder)))
    entries, sizes, notes = driver.finish_documents(options, counts, work)
    warnings += say_warnings(notes)
    manifest = corpus_manifest(job, first_pass, counts, entries, warnings)
    write_json(work.output / MANIFEST_FILE, manifest)
    lengths = [counts[f"{LENGTH}{n}"] for n in range(options.max_length + 2)]
    write_corpus_report(work.output / REPORT_FILE, manifest, lengths, sizes)
    return manifest


def _require_rows(left: int, counts: Counter[str]) -> None:
    """Raise UserError if no row is left. counts: of the rows read and dropped."""
    if not left:
        reasons = reasons_of(with_prefix(counts, DROPPED))
        raise UserError(
            f"nothing is left of {counted(counts['read'], 'row')} ({reasons}): give other "
            "input or options"
        )
