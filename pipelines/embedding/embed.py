"""cotbert embed: turn text of many formats into vectors in Parquet that any tool reads.

Ray Data actors hold the encoder. Each reads a share of the input, encodes it in blocks sorted by
length and writes each block to a part of its own, so vectors never pass through the driver. A part
gets its name when it is complete, the folder when every part is there. After a kill at any moment
the same command continues, and embeds again only the blocks that were in progress.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from cotbert_core.encoder.locations import short_name
from cotbert_core.errors import UserError, counted
from cotbert_core.files import read_json, write_json
from cotbert_core.templates.vocabulary_fit import vocabulary_warnings
from cotbert_core.training.memory import return_gpu_memory
from pipelines.embedding import blocks
from pipelines.embedding.blocks import BlockLedger
from pipelines.embedding.job import EmbedJob, open_job
from pipelines.embedding.manifest import manifest, precision_warnings, result
from pipelines.embedding.options import EmbedOptions
from pipelines.embedding.quantization import read_embeddings
from pipelines.embedding.update import earlier_rows, finish_update, share_of_earlier
from pipelines.embedding.worker import BlockEmbedder, EmbedTask
from pipelines.reading.bad_rows import reasons_of
from pipelines.reading.data_folder import DIGESTS_FOLDER, SKIPPED_FILE, make_data_folder
from pipelines.reading.lost_rows import found_notes
from pipelines.reading.read_plan import ReadPlan
from pipelines.recording.tracking import resumable_run
from pipelines.runtime.polling import polled
from pipelines.runtime.progress import Progress, say, say_warnings
from pipelines.runtime.ray_session import ray_runs, ray_session
from pipelines.runtime.shard_tasks import map_shards_with_actors, report_workers, runs_alone
from pipelines.runtime.shared_storage import on_all_nodes
from pipelines.runtime.worker_resources import has_gpus, worker_pool
from pipelines.storage.corpus import MANIFEST_FILE
from pipelines.storage.output_folder import RESULT_FILE, require_empty
from pipelines.storage.resumable_output import ResumableOutput, resumable_output

__all__ = ["EmbedOptions", "embed", "read_embeddings"]

# Blocks at a time in a worker with a GPU: while one has the encoder, the others are read, tokenized
# or written. A CPU's cores are busy with the encoder anyway.
CALLS_ON_GPUS = 3
# Bytes of input that an update reads without Ray on a machine without GPUs: most rows are usually
# taken over, which takes about 2 s for 100,000 Wikipedia lines, and one worker uses all cores.
UPDATED_BYTES = 64 << 20


def embed(options: EmbedOptions, output: Path) -> dict[str, Any]:
    """Write the embeddings folder `output` and return its result; UserError for a bad input.

    A killed job of the same input, model and options is continued.
    """
    output = require_empty(output)
    job = open_job(options)
    with (
        on_all_nodes(output, job.read_paths),
        resumable_output(output, job.record, paid=True) as work,
    ):
        if (work.output / RESULT_FILE).is_file():  # killed before the folder got its name
            return dict(read_json(work.output / RESULT_FILE))
        return _tracked(job, work)


def _tracked(job: EmbedJob, work: ResumableOutput) -> dict[str, Any]:
    """Run the job in its MLflow run, which is the same after a kill."""
    params = {k: v for k, v in job.options.decisive.items() if v not in (None, [])}
    about = f"Embeds {', '.join(job.options.inputs)} by {job.options.model}."
    with (
        resumable_run(work, "embed", params, about) as run,
        nullcontext() if _runs_alone(job) else ray_session(work.output),
    ):
        job_result = _run(job, work)
        run.result(job_result)
        run.artifact(work.output / MANIFEST_FILE)
    run.write_result(work.output, job_result)
    return job_result


def _runs_alone(job: EmbedJob) -> bool:
    """Return whether this process embeds the input by itself, without Ray."""
    if job.earlier is None:
        return runs_alone(job.stamps, job.options.workers)
    return runs_alone(job.stamps, job.options.workers, UPDATED_BYTES) and not has_gpus()


def _run(job: EmbedJob, work: ResumableOutput) -> dict[str, Any]:
    """Embed the blocks that are not done, write the manifest and the skipped rows; return the
    result."""
    started = time.monotonic()
    ledger = BlockLedger(work.scratch)
    if work.before:
        rows = ledger.counts["rows"]
        are = "is" if rows == 1 else "are"
        say(f"continuing {work.output.parent.parent}: {counted(rows, 'row')} {are} done")
    warnings = say_warnings(found_notes(job.plan, cleaned="markup" in job.options.clean))
    workers = _embed_blocks(job, work, ledger)
    warnings += say_warnings(ledger.lost_rows(job.plan).warnings())
    if not ledger.counts["rows"]:
        shutil.rmtree(work.scratch)  # it holds no vectors that would be worth keeping
        raise UserError(
            f"none of {ledger.counts['read']} rows can be embedded "
            f"({reasons_of(ledger.skipped)}): give other input or options"
        )
    _write_skipped(ledger, work.output / SKIPPED_FILE)
    update = None
    if job.earlier:
        shards = len(job.plan.shards)
        update, kept = finish_update(job.earlier, work, shards, job.options, ledger)
        ledger.counts.update(kept)
        vocabulary, precisions = share_of_earlier(job.earlier, ledger.counts["taken_over"])
        ledger.counts.update(vocabulary)
        ledger.precisions |= precisions
    warnings += say_warnings(vocabulary_warnings(ledger.counts, short_name(job.options.model)))
    warnings += say_warnings(precision_warnings(ledger.precisions))
    made = manifest(job.options, job.plan, job.metadata, ledger, warnings, update)
    write_json(work.output / MANIFEST_FILE, made)
    done = result(ledger, job.storage.dimension, workers, time.monotonic() - started)
    return done | (update or {})


def _embed_blocks(job: EmbedJob, work: ResumableOutput, ledger: BlockLedger) -> int:
    """Embed the block ranges that are not done; return the number of actors."""
    alone = not ray_runs()
    requested, on_gpus = job.options.workers, job.options.backend == "torch"
    most = 1 if alone and requested is None else None
    workers, resources, threads = worker_pool(requested, most, on_gpus=on_gpus)
    calls = CALLS_ON_GPUS if resources.get("num_gpus") else 1
    ranges = blocks.block_ranges(job.plan, work.scratch, workers * calls)
    workers = max(1, min(workers, len(ranges)))
    report_workers(job.options.workers, workers, len(ranges))
    storage = replace(job.storage, metadata=job.metadata)
    if not alone:
        job.encoder.backbone.model.to("meta")  # the workers open their own
        return_gpu_memory()
    make_data_folder(work.output)
    (work.output / DIGESTS_FOLDER).mkdir(exist_ok=True)
    earlier = earlier_rows(job.earlier, work.scratch) if job.earlier else None
    if earlier:
        earlier.write_index()
    arguments = {
        "task": EmbedTask(
            job.options, job.model, job.plan, ranges, storage, work.output, work.scratch, earlier
        ),
        "threads": threads,
        "encoder": job.encoder if alone else None,
    }
    with _shown_progress(job.plan, ledger):
        for _ in map_shards_with_actors(
            BlockEmbedder, arguments, len(ranges), workers, resources, calls
        ):
            pass
    left = blocks.block_ranges(job.plan, work.scratch, workers)
    if left:  # an output that looks finished must not lack rows
        raise RuntimeError(f"{len(left)} block ranges are not done, the first {left[0]}")
    return workers


@contextmanager
def _shown_progress(plan: ReadPlan, ledger: BlockLedger) -> Iterator[None]:
    """Show progress during the `with` block; afterwards the ledger holds all records.

    A block range may be a file of a million rows, so its task returns too late to show progress.
    """
    progress = Progress("embed", blocks.expected_rows(plan), "rows")
    progress.start_at(ledger.counts["read"])

    def show(always: bool = False) -> None:
        skipped = sum(ledger.skipped.values())
        details = [f"{ledger.rate:,.0f} rows/s"] if ledger.new_rows else []
        details += [f"{skipped:,} skipped"] if skipped else []
        progress.show(ledger.counts["read"], "  ".join(details), always=always)

    def update() -> None:
        if ledger.update():  # without new records the last line would be repeated
            # The workers took some seconds to open the encoder, which none of the rest will take.
            progress.started = time.monotonic() - max(0.0, time.time() - ledger.first)
            show()

    with polled(update):
        yield
    if progress.total is None:
        show(always=True)


def _write_skipped(ledger: BlockLedger, path: Path) -> None:
    """Write the rows without a vector, one on each line; no file if there are none."""
    if not ledger.skipped:
        return
    with path.open("w", encoding="utf-8") as file:
        for row in ledger.skipped_rows():
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
