"""cotbert embed: text in many forms to vectors in Parquet that any tool reads.

Ray Data actors hold the encoder; each takes a shard of the input, encodes it sorted by length
and writes its own part, so vectors never pass through the driver. A part has its name only when
it is whole, the folder its name only when every part is there.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from cotbert_core import __version__
from cotbert_core.backbone import from_anywhere
from cotbert_core.encoder import SentenceEncoder
from cotbert_core.errors import UserError
from cotbert_core.files import whole_folder, write_json
from pipelines import tracking
from pipelines.corpus import MANIFEST_FILE
from pipelines.outputs import RESULT_FILE, check_free
from pipelines.progress import Progress
from pipelines.ray_session import ray_session, worker_pool
from pipelines.reading import sources
from pipelines.reading.plans import Plan
from pipelines.reading.readers import Piece, read
from pipelines.shards import map_shards_with_actors

# About 8,000 sentences: enough to sort by length, little to lose when a worker dies.
SHARD_BYTES = 1 << 20
DTYPES = {"float32": pa.float32(), "float16": pa.float16()}
DEFAULT_ID = "id"


@dataclass(frozen=True)
class EmbedOptions:
    """id_column None: the column `id` of Parquet files that have one, else row numbers.
    workers None: one for each GPU, or one for each machine without any."""

    model: str
    inputs: tuple[str, ...]
    text_column: str = "text"
    id_column: str | None = None
    dtype: str = "float32"
    normalize: bool = False
    workers: int | None = None
    template: str | None = None
    readout: str | None = None
    precision: str = "auto"

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise UserError(f"dtype is {self.dtype!r}: choose one of {', '.join(DTYPES)}")
        if self.workers is not None and self.workers < 1:
            raise UserError(f"workers is {self.workers}: give at least 1")


def embed(
    options: EmbedOptions, output: Path, verbose: bool = False, parent: str | None = None
) -> dict[str, Any]:
    """Write the embeddings folder `output` and return its result; UserError for a bad input."""
    output = check_free(output)
    options = replace(options, model=from_anywhere(options.model))
    plan = sources.plan(options.inputs, options.text_column, options.id_column, SHARD_BYTES)
    if options.id_column is None and sources.all_have_integers(plan, DEFAULT_ID):
        plan = sources.plan(options.inputs, options.text_column, DEFAULT_ID, SHARD_BYTES)
    # Opened here first, so that a wrong model or template is told before a worker starts.
    encoder = SentenceEncoder.from_pretrained(options.model, options.template, options.readout)
    params = {key: value for key, value in vars(options).items() if value is not None}
    with (
        tracking.tracked_run("embed", params, parent=parent) as run,
        ray_session(verbose),
        whole_folder(output) as folder,
    ):
        started = time.monotonic()
        tally = _run(options, plan, folder)
        if not tally.counts["rows"]:
            raise UserError(
                f"none of {tally.counts['read']} rows can be embedded ({tally.reasons()}): give "
                "input that holds text"
            )
        write_json(folder / MANIFEST_FILE, _manifest(options, plan, encoder, tally))
        result = {
            "rows": tally.counts["rows"],
            "skipped": sum(tally.skipped.values()),
            **{f"skipped_{reason}": n for reason, n in tally.skipped.items()},
            "dimension": encoder.dimension,
            "sentences_per_second": round(tally.rate, 1),
            "seconds": round(time.monotonic() - started, 3),
            "mlflow_run_id": run.id,
        }
        run.result(result)
        write_json(folder / RESULT_FILE, result)
        run.artifact(folder / MANIFEST_FILE)
    return result


@dataclass
class Tally:
    """What the actors report: rows read, embedded and dropped, and when work began and ended.

    Starting Ray and loading the encoder lie outside of that time.
    """

    counts: Counter[str] = field(default_factory=Counter)
    first: float = float("inf")
    last: float = 0.0

    def add(self, row: dict[str, Any]) -> None:
        self.counts += row["counts"]
        self.first, self.last = min(self.first, row["started"]), max(self.last, row["ended"])

    @property
    def rate(self) -> float:
        """Sentences a second."""
        return self.counts["rows"] / max(self.last - self.first, 1e-9)

    @property
    def skipped(self) -> dict[str, int]:
        """Rows dropped, by reason."""
        start = "dropped."
        return {k[len(start) :]: n for k, n in sorted(self.counts.items()) if k.startswith(start)}

    def reasons(self) -> str:
        return ", ".join(f"{n} {reason}" for reason, n in self.skipped.items()) or "none read"


def _manifest(
    options: EmbedOptions, plan: Plan, encoder: SentenceEncoder, tally: Tally
) -> dict[str, Any]:
    template = encoder.reading.template
    return {
        "format": 1,
        "rows": tally.counts["rows"],
        "skipped": tally.skipped,
        "dimension": encoder.dimension,
        "dtype": options.dtype,
        "normalize": options.normalize,
        "model": options.model,
        "model_digest": model_digest(options.model),
        "readout": encoder.reading.readout,
        "template": template.text if template else None,
        "id_column": plan.id_column,
        "inputs": list(options.inputs),
        "files": len(plan.files),
        "files_ignored": plan.ignored,
        "versions": {"cotbert": __version__, "pyarrow": pa.__version__},
    }


def _run(options: EmbedOptions, plan: Plan, folder: Path) -> Tally:
    """All shards through the actors."""
    workers, resources, threads = worker_pool(options.workers)
    arguments = {"options": options, "plan": plan, "folder": str(folder), "threads": threads}
    tally = Tally()
    progress = Progress("embed", len(plan.shards), "shard")
    rows = map_shards_with_actors(EmbedShard, arguments, len(plan.shards), workers, resources)
    for done, row in enumerate(rows, start=1):
        tally.add(row)
        progress.show(done, f"{tally.counts['rows']:,} rows  {tally.rate:,.0f} sentences/s")
    return tally


class EmbedShard:
    """An actor that turns shards into parts."""

    def __init__(self, options: EmbedOptions, plan: Plan, folder: str, threads: int) -> None:
        torch.set_num_threads(threads)
        self._options, self._plan, self._folder = options, plan, Path(folder)
        self._encoder = SentenceEncoder.from_pretrained(
            options.model, options.template, options.readout
        )
        element = DTYPES[options.dtype]
        self._schema = pa.schema(
            [("id", pa.int64()), ("embedding", pa.list_(element, self._encoder.dimension))]
        )

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        number = int(row["id"])
        started = time.time()
        counts: Counter[str] = Counter()
        partial = self._folder / f"part-{number:06}.partial"
        with pq.ParquetWriter(partial, self._schema, compression="zstd") as writer:
            for piece in read(self._plan.shards[number], self._plan):
                counts["read"] += piece.read
                counts["rows"] += len(piece.texts)
                counts.update({f"dropped.{reason}": n for reason, n in piece.dropped.items()})
                if piece.texts:
                    writer.write_table(self._table(piece))
        if counts["rows"]:
            partial.rename(partial.with_suffix(".parquet"))
        else:
            partial.unlink()
        return {"counts": counts, "started": started, "ended": time.time()}

    def _table(self, piece: Piece) -> pa.Table:
        vectors = self._encoder.encode(
            piece.texts,
            normalize=self._options.normalize or None,
            dtype=self._options.dtype,  # type: ignore[arg-type]
            precision=self._options.precision,  # type: ignore[arg-type]
        )
        flat = pa.array(vectors.reshape(-1), DTYPES[self._options.dtype])
        embedding = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
        return pa.Table.from_arrays(
            [pa.array(piece.ids, pa.int64()), embedding], schema=self._schema
        )


def model_digest(model: str) -> str | None:
    """Short hash of a model folder's weights; None for a name."""
    weights = Path(model) / "model.safetensors"
    if not weights.is_file():
        return None
    with weights.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def read_embeddings(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """(N,) ids and (N, D) vectors of an embeddings folder."""
    tables = [pq.read_table(p) for p in sorted(folder.glob("part-*.parquet"))]
    table = pa.concat_tables(tables).combine_chunks()
    vectors = table["embedding"].combine_chunks()
    return np.asarray(table["id"]), np.asarray(vectors.flatten()).reshape(len(table), -1)
