"""cotbert prepare: text in many forms to a corpus of distinct, tokenized sentences.

A row may carry companions: a text of the same meaning, and one that only looks alike.

Two passes of Ray Data tasks over the input's shards. The first reads and cleans, keeps a
scratch file per shard and returns the rows' ids, which are hashes of their texts; the driver then
knows every duplicate from eight bytes a row. The second tokenizes the rows that stay and writes
the parts. The result depends on the input alone, not on how many workers there were.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from cotbert_core import __version__
from cotbert_core.backbone import load_tokenizer
from cotbert_core.errors import UserError
from cotbert_core.files import whole_folder, write_json
from cotbert_core.tokenizing import PlainTokenizer
from pipelines import sources, tracking
from pipelines.corpus import MANIFEST_FILE
from pipelines.outputs import RESULT_FILE, check_free
from pipelines.prepare_passes import ReadShard, WritePart
from pipelines.progress import Progress, say
from pipelines.ray_session import ray_session
from pipelines.shards import map_shards

SCRATCH = "scratch"
DROPPED = "dropped."
# Rows that a part has at least, the last part aside: input of many small files makes few parts.
PART_ROWS = 16_384


@dataclass(frozen=True)
class PrepareOptions:
    """inputs: paths, folders, globs, docstrings:PACKAGE,..., sick:DIR. sample: keep at most so many
    rows, chosen by their hash. on_invalid: what to do about rows that cannot be read, drop or fail.
    augmented_column, negative_column: where a row's companions are; None: there are none."""

    inputs: tuple[str, ...]
    encoder: str
    max_length: int = 32
    text_column: str = "text"
    sample: int | None = None
    on_invalid: str = "drop"
    augmented_column: str | None = None
    negative_column: str | None = None

    def __post_init__(self) -> None:
        if self.max_length < 1:
            raise UserError(f"max_length is {self.max_length}: give at least 1 token")
        if self.sample is not None and self.sample < 1:
            raise UserError(f"sample is {self.sample}: give at least 1 row")
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
    text, augmented, negative = sources.TRIPLES
    say(f"{' '.join(options.inputs)}: columns {text}, {augmented}, {negative} taken as triples")
    return replace(options, text_column=text, augmented_column=augmented, negative_column=negative)


def prepare(
    options: PrepareOptions, output: Path, verbose: bool = False, parent: str | None = None
) -> dict[str, Any]:
    """Write the corpus folder `output` and return its result; UserError for a bad input."""
    output = check_free(output)
    options = recognise_triples(options)
    plan = sources.plan(options.inputs, options.text_column, companions=options.companions)
    tokenizer = load_tokenizer(options.encoder)
    params = {key: value for key, value in vars(options).items() if value is not None}
    with (
        tracking.tracked_run("prepare", params, parent=parent) as run,
        ray_session(verbose),
        whole_folder(output) as folder,
    ):
        started = time.monotonic()
        manifest = _write_corpus(options, plan, tokenizer, folder)
        result = _result(manifest, time.monotonic() - started, run.id)
        run.result(result)
        run.artifact(folder / MANIFEST_FILE)
        write_json(folder / RESULT_FILE, result)
    return result


def _write_corpus(
    options: PrepareOptions, plan: sources.Plan, tokenizer: PlainTokenizer, folder: Path
) -> dict[str, Any]:
    """Both passes; the manifest."""
    scratch = folder / SCRATCH
    scratch.mkdir()
    ids, counts = _first_pass(plan, options, scratch)
    keep, dropped = _choose(ids, options.sample)
    counts += dropped
    if any(k.any() for k in keep):
        counts += _second_pass(tokenizer.json, options.max_length, keep, scratch)
    if not counts["rows"]:
        raise UserError(
            f"nothing is left of {counts['read']} rows ({_reasons(counts)}): give input that "
            "holds text"
        )
    shutil.rmtree(scratch)
    manifest = _manifest(plan, options, tokenizer.hash, counts)
    write_json(folder / MANIFEST_FILE, manifest)
    return manifest


def _first_pass(
    plan: sources.Plan, options: PrepareOptions, scratch: Path
) -> tuple[list[np.ndarray], Counter[str]]:
    """The ids of each shard's rows, and the counts over all."""
    count = len(plan.shards)
    ids: list[np.ndarray] = [np.empty(0, np.int64)] * count
    counts: Counter[str] = Counter()
    progress = Progress("prepare", count, "read")
    task = ReadShard(plan, str(scratch), options.on_invalid)
    for done, row in enumerate(map_shards(task, count), start=1):
        ids[row["number"]] = row["ids"]
        counts += row["counts"]
        progress.show(done, f"{counts['read']:,} rows")
    return ids, counts


def _choose(ids: list[np.ndarray], sample: int | None) -> tuple[list[np.ndarray], Counter[str]]:
    """For each shard which rows stay: the first of each id, and of those the `sample` with the
    smallest hash, which is as good as a draw and the same for any order of the input."""
    together = np.concatenate(ids) if ids else np.empty(0, np.int64)
    distinct, first = np.unique(together, return_index=True)
    keep = np.zeros(len(together), bool)
    keep[first[:sample]] = True
    counts = Counter({"dropped.duplicate": len(together) - len(distinct)})
    counts["sampled_out"] = len(distinct) - int(keep.sum())
    return np.split(keep, np.cumsum([len(i) for i in ids])[:-1]), counts


def _second_pass(
    tokenizer_json: str, max_length: int, keep: list[np.ndarray], scratch: Path
) -> Counter[str]:
    for number, rows in enumerate(keep):
        np.save(scratch / f"{number:06}.npy", rows)
    counts: Counter[str] = Counter()
    kept = [int(rows.sum()) for rows in keep]
    groups = _groups(kept)
    progress = Progress("prepare", sum(kept), "sentences")
    task = WritePart(tokenizer_json, max_length, str(scratch), groups)
    for row in map_shards(task, len(groups)):
        counts += row["counts"]
        progress.show(counts["rows"] + sum(n for k, n in counts.items() if k.startswith(DROPPED)))
    return counts


def _groups(kept: list[int]) -> tuple[tuple[int, ...], ...]:
    """Neighbouring shards put together until a part has PART_ROWS; those without rows left out."""
    groups: list[list[int]] = [[]]
    rows = 0
    for shard, count in enumerate(kept):
        if rows >= PART_ROWS:
            groups.append([])
            rows = 0
        if count:
            groups[-1].append(shard)
            rows += count
    return tuple(tuple(group) for group in groups if group)


def _manifest(
    plan: sources.Plan, options: PrepareOptions, tokenizer_hash: str, counts: Counter[str]
) -> dict[str, Any]:
    dropped = {k.removeprefix(DROPPED): n for k, n in counts.items() if k.startswith(DROPPED)}
    return {
        "format": 1,
        "columns": list(plan.columns),
        "rows_read": counts["read"],
        "rows": counts["rows"],
        "dropped": {reason: n for reason, n in sorted(dropped.items()) if n},
        "sampled_out": counts["sampled_out"],
        "truncated": counts["truncated"],
        "tokens": counts["tokens"],
        "encoder": options.encoder,
        "tokenizer_hash": tokenizer_hash,
        "max_length": options.max_length,
        "source": {
            "inputs": sorted(set(options.inputs)),
            "files": len(plan.files),
            "files_ignored": plan.ignored,
            "text_column": options.text_column,
            "augmented_column": options.augmented_column,
            "negative_column": options.negative_column,
            "sample": options.sample,
        },
        "versions": {"cotbert": __version__, "pyarrow": pa.__version__},
    }


def _result(manifest: dict[str, Any], seconds: float, run_id: str | None) -> dict[str, Any]:
    return {
        "rows_read": manifest["rows_read"],
        "rows": manifest["rows"],
        **{f"dropped_{reason}": n for reason, n in manifest["dropped"].items()},
        "sampled_out": manifest["sampled_out"],
        "truncated": manifest["truncated"],
        "files_ignored": manifest["source"]["files_ignored"],
        "seconds": round(seconds, 3),
        "sentences_per_second": round(manifest["rows"] / seconds, 1),
        "mlflow_run_id": run_id,
    }


def _reasons(counts: Counter[str]) -> str:
    dropped = {k: n for k, n in counts.items() if k.startswith(DROPPED) and n}
    return ", ".join(f"{n} {k.removeprefix('dropped.')}" for k, n in dropped.items()) or "none read"
