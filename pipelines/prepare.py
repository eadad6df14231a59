"""cotbert prepare: text in many forms to a corpus of distinct, tokenized sentences.

A row may carry companions: a text of the same meaning, and one that only looks alike.

Two passes of Ray Data tasks over the input's shards. The first reads and cleans, and leaves scratch
files of the rows and of their ids, which are hashes of their texts; from the ids the driver finds
every duplicate, on disk. The second tokenizes the rows that stay and writes the parts. The result
depends on the input alone, not on how many workers there were, on the order in which files were
named or on how often the job was killed on the way: the same command goes on with what is done.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from cotbert_core import __version__
from cotbert_core.backbone import load_tokenizer
from cotbert_core.errors import UserError
from cotbert_core.files import read_json, write_json
from cotbert_core.tokenizing import PlainTokenizer
from pipelines.cleaning.cleaner import Cleaner
from pipelines.cleaning.options import CleanOptions
from pipelines.corpus import MANIFEST_FILE
from pipelines.outputs import RESULT_FILE, check_free
from pipelines.preparing import stages
from pipelines.preparing.exclusion import HIT, Exclusion, read_exclusion
from pipelines.preparing.passes import CHANGED, DROPPED, LENGTH, Rules
from pipelines.preparing.report import REPORT_FILE, write_corpus_report
from pipelines.preparing.stages import Reading
from pipelines.progress import say
from pipelines.ray_session import ray_session
from pipelines.reading import sources
from pipelines.reading.columns import TRIPLES
from pipelines.reading.plans import Plan
from pipelines.reading.readers import PIECE_ROWS
from pipelines.shared_storage import on_all_nodes
from pipelines.unfinished import Unfinished, unfinished


@dataclass(frozen=True)
class PrepareOptions:
    """inputs: paths, folders, globs, URIs, docstrings:PACKAGE,..., sick:DIR, hf:NAME. sample: keep
    at most so many rows, chosen by their hash. on_invalid: what to do about rows that cannot be
    read, drop or fail. augmented_column, negative_column: where a row's companions are; None: there
    are none. exclude: files of sentences to keep out. near_duplicates: the Jaccard similarity from
    which one of two rows is dropped; None: both stay. clean: what is done to texts before that."""

    inputs: tuple[str, ...]
    encoder: str
    max_length: int = 32
    text_column: str = "text"
    sample: int | None = None
    on_invalid: str = "drop"
    augmented_column: str | None = None
    negative_column: str | None = None
    exclude: tuple[str, ...] = ()
    near_duplicates: float | None = None
    clean: CleanOptions = field(default_factory=CleanOptions)

    def __post_init__(self) -> None:
        if self.max_length < 1:
            raise UserError(f"max_length is {self.max_length}: give at least 1 token")
        if self.sample is not None and self.sample < 1:
            raise UserError(f"sample is {self.sample}: give at least 1 row")
        if self.near_duplicates is not None and not 0.3 <= self.near_duplicates <= 0.99:
            raise UserError(
                f"near_duplicates is {self.near_duplicates}: give a similarity from 0.3 to 0.99"
            )
        if self.negative_column and not self.augmented_column:
            raise UserError(
                f"negative_column is {self.negative_column!r} and there is no augmented_column: "
                "give --augmented-column too"
            )
        texts = (self.text_column, *self.companions)
        if len(set(texts)) < len(texts):
            raise UserError(
                f"the columns {', '.join(texts)} name one twice: give each text its own"
            )

    @property
    def companions(self) -> tuple[str, ...]:
        """The columns of the companions, in the order of cotbert_core.batch.COLUMNS."""
        return tuple(c for c in (self.augmented_column, self.negative_column) if c)


def recognise_triples(options: PrepareOptions) -> PrepareOptions:
    """The options as --triples would make them, where the files are such and no option speaks
    of columns; otherwise as they are."""
    if options.text_column != "text" or options.companions:
        return options
    if not sources.are_triples(options.inputs):
        return options
    text, augmented, negative = TRIPLES
    say(f"{' '.join(options.inputs)}: columns {text}, {augmented}, {negative} taken as triples")
    return replace(options, text_column=text, augmented_column=augmented, negative_column=negative)


def prepare(
    options: PrepareOptions, output: Path, verbose: bool = False, parent: str | None = None
) -> dict[str, Any]:
    """Write the corpus folder `output` and return its result; UserError for a bad input.

    What a killed job of the same input and options left is gone on with.
    """
    output = check_free(output)
    options = recognise_triples(options)
    plan = sources.plan(options.inputs, options.text_column, companions=options.companions)
    cleaner = Cleaner(options.clean, len(plan.companions))
    exclusion = read_exclusion(options.exclude)
    rules = Rules(options.on_invalid, cleaner, exclusion, options.near_duplicates)
    tokenizer = load_tokenizer(options.encoder)
    with (
        on_all_nodes(output, plan.files, verbose),
        unfinished(output, _record(options, plan, exclusion, tokenizer.hash)) as work,
    ):
        if work.before:
            _tell_what_is_there(plan, work)
        if (work.output / RESULT_FILE).is_file():  # killed before the folder got its name
            return dict(read_json(work.output / RESULT_FILE))
        return _run(Job(options, plan, rules, tokenizer), work, verbose, parent)


@dataclass(frozen=True)
class Job:
    """What a corpus is made of."""

    options: PrepareOptions
    plan: Plan
    rules: Rules
    tokenizer: PlainTokenizer


def _record(
    options: PrepareOptions, plan: Plan, exclusion: Exclusion, tokenizer_hash: str
) -> dict[str, Any]:
    """All that decides what is written, in whatever order the files were named."""
    return {
        "job": "prepare",
        "options": {
            **vars(options),
            "inputs": sorted(set(options.inputs)),
            "exclude": sorted(set(options.exclude)),
            "clean": vars(options.clean),
        },
        "tokenizer": tokenizer_hash,
        "excluded": exclusion.digest,
        "files": sources.stamps(plan),
        "shards": hashlib.sha256(repr(plan.shards).encode()).hexdigest()[:16],
        "part_rows": [stages.PART_ROWS, stages.UNIT_ROWS, PIECE_ROWS],
        "versions": _versions(),
    }


def _tell_what_is_there(plan: Plan, work: Unfinished) -> None:
    shards = len(stages.finished(work.scratch, "[0-9]*.json"))
    parts = len(stages.finished(work.scratch, "part-*.json"))
    and_parts = f" and {parts} parts" if parts else ""
    say(
        f"going on with {work.output.parent.parent}: {shards} of {len(plan.shards)} shards"
        f"{and_parts} are there"
    )


def _run(job: Job, work: Unfinished, verbose: bool, parent: str | None) -> dict[str, Any]:
    params = {**vars(job.options), **cleaning(job.options.clean)}
    params = {k: v for k, v in params.items() if k != "clean" and v not in (None, ())}
    with (
        work.tracked_run("prepare", params, parent) as run,
        ray_session(verbose),
    ):
        started, before = time.monotonic(), stages.rows_written(work)
        manifest = _write_corpus(job, work)
        fresh = manifest["rows"] - before
        result = _result(manifest, fresh, time.monotonic() - started, run.id)
        run.result(result)
        for name in (MANIFEST_FILE, REPORT_FILE):
            run.artifact(work.output / name)
        write_json(work.output / RESULT_FILE, result)
    return result


def _write_corpus(job: Job, work: Unfinished) -> dict[str, Any]:
    """Both passes; the manifest, which is written with the report."""
    options, plan = job.options, job.plan
    reading = stages.read_shards(plan, job.rules, work)
    counts = reading.counts
    counts += stages.choose_rows(len(plan.shards), options.near_duplicates, options.sample, work)
    counts += stages.write_parts(
        job.tokenizer.json, options.max_length, options.clean, reading.kept.tolist(), work
    )
    if not counts["rows"]:
        raise UserError(
            f"nothing is left of {counts['read']} rows ({_reasons(counts)}): give input that "
            "holds text"
        )
    manifest = _manifest(job, reading, counts)
    write_json(work.output / MANIFEST_FILE, manifest)
    lengths = [counts[f"{LENGTH}{n}"] for n in range(options.max_length + 2)]
    write_corpus_report(work.output / REPORT_FILE, manifest, lengths)
    return manifest


def _manifest(job: Job, reading: Reading, counts: Counter[str]) -> dict[str, Any]:
    options, plan = job.options, job.plan
    dropped = _named(counts, DROPPED)
    hits = sum(key.startswith(HIT) for key in counts)
    return {
        "format": 1,
        "columns": list(plan.columns),
        "rows_read": counts["read"],
        "rows": counts["rows"],
        "added": counts["added"],
        "changed": _named(counts, CHANGED),
        "dropped": dropped,
        "sampled_out": counts["sampled_out"],
        **({"exclude_hits": hits} if options.exclude else {}),
        "truncated": counts["truncated"],
        "tokens": counts["tokens"],
        "encoder": options.encoder,
        "tokenizer_hash": job.tokenizer.hash,
        "max_length": options.max_length,
        "source": {
            "inputs": sorted(set(options.inputs)),
            "files": len(plan.files),
            "files_ignored": plan.ignored,
            "files_without_rows": sum(not reading.read[name] for name in plan.files),
            "text_column": options.text_column,
            "augmented_column": options.augmented_column,
            "negative_column": options.negative_column,
            "sample": options.sample,
            "near_duplicates": options.near_duplicates,
            "exclude": sorted(set(options.exclude)),
            "exclude_sentences": len(job.rules.exclusion.keys),
            "cleaning": cleaning(options.clean),
        },
        "versions": _versions(),
    }


def _named(counts: Counter[str], kind: str) -> dict[str, int]:
    """The counts of this kind by their own names, those above 0."""
    named = ((k.removeprefix(kind), n) for k, n in sorted(counts.items()) if k.startswith(kind))
    return {name: n for name, n in named if n}


def cleaning(options: CleanOptions) -> dict[str, Any]:
    """The options of cleaning that are on."""
    chosen = {key: value for key, value in vars(options).items() if value not in (None, ())}
    if not options.language:
        del chosen["language_probability"]
    return chosen


def _versions() -> dict[str, str]:
    return {"cotbert": __version__, "pyarrow": pa.__version__}


def _result(
    manifest: dict[str, Any], fresh: int, seconds: float, run_id: str | None
) -> dict[str, Any]:
    """fresh: rows that this run wrote, in `seconds`; after a kill an earlier one wrote others."""
    return {
        "rows_read": manifest["rows_read"],
        "rows": manifest["rows"],
        **({"added": manifest["added"]} if manifest["added"] else {}),
        **{f"changed_{step}": n for step, n in manifest["changed"].items()},
        **{f"dropped_{reason}": n for reason, n in manifest["dropped"].items()},
        "sampled_out": manifest["sampled_out"],
        **{key: manifest[key] for key in ("exclude_hits",) if key in manifest},
        "truncated": manifest["truncated"],
        "files_ignored": manifest["source"]["files_ignored"],
        "files_without_rows": manifest["source"]["files_without_rows"],
        "rows_of_this_run": fresh,
        "seconds": round(seconds, 3),
        "sentences_per_second": round(fresh / seconds, 1),
        "mlflow_run_id": run_id,
    }


def _reasons(counts: Counter[str]) -> str:
    dropped = _named(counts, DROPPED)
    return ", ".join(f"{n} {reason}" for reason, n in dropped.items()) or "none read"
