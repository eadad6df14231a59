"""cotbert augment: make a corpus whose rows also have a rewrite, for DenoSent.

Both methods apply a rewriter (pipelines.augmenting.parts) to the corpus's parts. Back-translation
runs in Ray Data actors. Requests to a language model are sent by this process only: its limits
apply to all requests together, and the key never leaves it. Rows, ids and texts do not change.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from cotbert_core import __version__
from cotbert_core.encoder.backbone import load_tokenizer
from cotbert_core.encoder.locations import absolute_name
from cotbert_core.errors import UserError
from cotbert_core.files import read_json, write_json
from cotbert_core.templates.tokenizing import PlainTokenizer
from pipelines.augmenting.ledger import read_ledger
from pipelines.augmenting.methods import AugmentJob, LlmJob, TranslationJob
from pipelines.augmenting.options import AugmentOptions, BackTranslation
from pipelines.augmenting.parts import PartPlan
from pipelines.reading.data_folder import make_data_folder
from pipelines.reading.manifests import HELD_OUT_FILE
from pipelines.recording.tracking import resumable_run
from pipelines.runtime.ending import REPORT_FILE
from pipelines.runtime.progress import Progress, say
from pipelines.runtime.shared_storage import on_all_nodes
from pipelines.storage.corpus import MANIFEST_FILE, Corpus
from pipelines.storage.output_folder import RESULT_FILE, require_empty
from pipelines.storage.resumable_output import ResumableOutput, resumable_output

AUGMENTED = "augmented"
SUMS = ("rows", "rewritten", "repeated", "truncated", "inputs_cut", "tokens_in", "tokens_out")


def augment(options: AugmentOptions, output: Path) -> dict[str, Any]:
    """Write the corpus folder `output` and return its result; UserError for a bad input."""
    from pipelines.augmenting.report import write_report  # it imports matplotlib

    output = require_empty(output)
    corpus = open_plain(options.corpus)
    tokenizer = _own_tokenizer(corpus, options.encoder)
    job: AugmentJob = (
        TranslationJob(options.method, options.workers)
        if isinstance(options.method, BackTranslation)
        else LlmJob(options.method)
    )
    record = {"corpus_digest": corpus.digest, **job.record, **vars(options.limits)}
    inputs = (str(corpus.path), *job.folders)
    with (
        on_all_nodes(output, inputs) if job.folders else nullcontext(),
        resumable_output(output, {"job": "augment", **record}, paid=True) as work,
    ):
        if (work.output / RESULT_FILE).is_file():  # killed before the folder got its name
            return dict(read_json(work.output / RESULT_FILE))
        if work.before:
            say(f"continuing with the rewrites in {work.output.parent.parent}")
        # MLflow refuses to change a param, and the corpus of a continued job may have been moved.
        params = record if work.before else {"corpus": str(corpus.path), **record}
        about = f"Rewrites the sentences of {corpus.path} by {options.method.name}."
        with resumable_run(work, "augment", params, about) as run:
            started = time.monotonic()
            plan = _plan(options, corpus, tokenizer, work)
            summary, fresh = _run(plan, job)
            manifest = _manifest(corpus, record, job, summary)
            if (corpus.path / HELD_OUT_FILE).is_file():
                shutil.copyfile(corpus.path / HELD_OUT_FILE, work.output / HELD_OUT_FILE)
            write_report(work.output / REPORT_FILE, manifest["augmentation"], summary)
            write_json(work.output / MANIFEST_FILE, manifest)
            result = _result(manifest, fresh, time.monotonic() - started)
            run.result(result)
            run.artifact(work.output / MANIFEST_FILE)
            run.artifact(work.output / REPORT_FILE)
        run.write_result(work.output, result)
    return result


def open_plain(path: str) -> Corpus:
    """Open a prepared corpus without paired texts; UserError for any other."""
    corpus = Corpus.open(path)
    corpus.require_unpacked()
    if "negative" in corpus.columns:
        raise UserError(
            f"corpus {str(corpus.path)!r} holds triples, which already have a text of the same "
            "meaning: give a corpus of plain sentences"
        )
    if corpus.columns:
        raise UserError(
            f"corpus {str(corpus.path)!r} already has augmented texts: train on it, or augment the "
            "corpus that it was made from"
        )
    if not corpus.parts():
        raise UserError(f"corpus {str(corpus.path)!r} has no data/part-*.parquet: prepare it again")
    return corpus


def _own_tokenizer(corpus: Corpus, encoder: str | None) -> PlainTokenizer:
    """Return the tokenizer that the corpus was tokenized with."""
    name = encoder or corpus.manifest["encoder"]
    try:
        tokenizer = load_tokenizer(absolute_name(name))
    except UserError as error:
        raise UserError(
            f"{error}; corpus {str(corpus.path)!r} was tokenized for it: give its new place with "
            "--encoder"
        ) from None
    corpus.check_tokenizer(name, tokenizer.hash, corpus.manifest["max_length"])
    return tokenizer


def _plan(
    options: AugmentOptions, corpus: Corpus, tokenizer: PlainTokenizer, work: ResumableOutput
) -> PartPlan:
    parts = corpus.parts()
    return PartPlan(
        parts[0].parent,
        make_data_folder(work.output),
        work.scratch,
        tuple(path.name for path in parts),
        tokenizer.json,
        corpus.manifest["max_length"],
        options.limits,
        by_model=not isinstance(options.method, BackTranslation),
        documents=corpus.has_documents,
    )


def _run(plan: PartPlan, job: AugmentJob) -> tuple[dict[str, Any], int]:
    """Rewrite the unfinished parts; return the totals of all parts and the rows of this run."""
    finished = [read_json(plan.counts(name)) for name in plan.names if plan.is_finished(name)]
    unfinished = [name for name in plan.names if not plan.is_finished(name)]
    before = sum(part["rows"] for part in finished)
    before += sum(len(read_ledger(plan.ledger(name))) for name in unfinished)
    rows = sum(pq.read_metadata(plan.corpus / name).num_rows for name in plan.names)
    progress = Progress("augment", rows, "row")
    progress.start_at(before)
    fresh = 0

    def report(more: int) -> None:
        nonlocal fresh
        fresh += more
        rate = fresh / max(time.monotonic() - progress.started, 1e-9)
        progress.show(before + fresh, f"{rate:,.1f} rows/s")

    job.run(plan, unfinished, report)
    return _totals([read_json(plan.counts(name)) for name in plan.names]), fresh


def _totals(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the summed counts and lengths, and the examples, of all parts."""
    # Parts that an earlier version has finished have no number of repeated rewrites.
    totals: dict[str, Any] = {name: sum(part.get(name, 0) for part in parts) for name in SUMS}
    reasons: Counter[str] = Counter()
    for part in parts:
        reasons.update(part["source_kept"])
    totals["source_kept"] = dict(sorted(reasons.items()))
    for name in ("lengths", "source_lengths"):
        totals[name] = [sum(counts) for counts in zip(*(p[name] for p in parts), strict=True)]
    totals["examples"] = [example for part in parts for example in part["examples"]]
    return totals


def _manifest(
    corpus: Corpus, record: Mapping[str, Any], job: AugmentJob, summary: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the corpus's manifest with an entry about the augmentation."""
    counts = {name: summary[name] for name in ("rewritten", "source_kept", "truncated")}
    done = {**record, "counts": {**counts, **job.manifest_entries(summary)}, "version": __version__}
    return {**corpus.manifest, "columns": [AUGMENTED], "augmentation": done}


def _result(manifest: Mapping[str, Any], fresh: int, seconds: float) -> dict[str, Any]:
    counts = dict(manifest["augmentation"]["counts"])
    kept = counts.pop("source_kept")
    return {
        "rows": manifest["rows"],
        "rewritten": counts.pop("rewritten"),
        "source_kept": sum(kept.values()),
        **{f"source_kept_{reason}": n for reason, n in kept.items()},
        **counts,
        "rows_of_this_run": fresh,
        "seconds": round(seconds, 3),
        "rows_per_second": round(fresh / max(seconds, 1e-9), 1),
    }
