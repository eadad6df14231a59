"""What an embedding job is: its input, model and storage, checked before a worker starts."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from cotbert_core.choices import Backend
from cotbert_core.encoder.locations import model_digest
from cotbert_core.encoder.pooling_files import unread_notes
from cotbert_core.errors import UserError
from cotbert_core.exporting.int8_graph import has_int8
from cotbert_core.files import digest
from cotbert_core.sentence_encoder import SentenceEncoder
from pipelines.cleaning.steps import cleaning
from pipelines.embedding.embeddings import Embeddings
from pipelines.embedding.manifest import described, model_commit
from pipelines.embedding.options import ID_COLUMN, EmbedOptions
from pipelines.embedding.quantization import Storage
from pipelines.embedding.update import check_same, check_types, open_earlier
from pipelines.reading import pieces, sources
from pipelines.reading.columns import check_reading
from pipelines.reading.file_shards import join_small_files
from pipelines.reading.manifests import EACH_ROW
from pipelines.reading.read_plan import ReadPlan
from pipelines.recording.fetching import fetch_model
from pipelines.runtime.inference import choose_library
from pipelines.runtime.progress import say
from pipelines.storage.corpus import MANIFEST_FILE
from pipelines.storage.resumable_output import versions

# Bytes of a shard of text: some 6,500 Wikipedia sentences, so one block: enough to sort by length,
# little to repeat if a worker dies. Shards of two blocks, a long and a short one, bring the calls
# of a worker into step: a device of 6,500 rows a second was busy for 82 % of the time, instead of
# 96 % (benchmarks/sleeping_device.py).
SHARD_BYTES = 1 << 19


@dataclass(frozen=True)
class EmbedJob:
    """Everything that decides the vectors.

    model: the folder or hub name that options.model stands for. digest: the hash of a model folder.
    earlier: the embeddings that the job updates.
    """

    options: EmbedOptions
    plan: ReadPlan
    model: str
    digest: str | None
    encoder: SentenceEncoder
    storage: Storage
    earlier: Embeddings | None = None

    @property
    def metadata(self) -> dict[str, Any]:
        """What is needed to use the vectors; it is in the manifest and in each part's metadata.

        scale: for int8, where its scales are. normalize: whether vectors have unit length, because
        of the option or because the model does so.
        """
        options, encoder, storage = self.options, self.encoder, self.storage
        pooling = encoder.pooling
        metadata: dict[str, Any] = {
            "dimension": storage.dimension,
            "dtype": options.dtype,
            "normalize": storage.normalize,
            "model": self.model,
            "model_digest": self.digest,
            "model_commit": model_commit(encoder),
            "readout": pooling.readout,
            "template": pooling.template.text if pooling.template else None,
            "denoise": pooling.denoise,
            "head": pooling.head,
            "full_stop": pooling.full_stop,
            "max_tokens": encoder.max_length,
            "on_long": options.on_long,
            "backend": options.backend,
        }
        if options.backend == "openvino" and options.precision == "auto" and has_int8(self.model):
            metadata["computed_in"] = "int8"
        if self.model != options.model:
            metadata["model_source"] = options.model
        if storage.dimension < encoder.dimension:
            metadata["truncated_from"] = encoder.dimension
        if options.dtype == "int8":
            metadata["scale"] = EACH_ROW
        return metadata

    @cached_property
    def stamps(self) -> dict[str, list[int]]:
        """[size, time] of each file of the input, which storage elsewhere is asked for once."""
        return sources.stamps(self.plan)

    @property
    def read_paths(self) -> list[str | Path]:
        """Return everything that the workers read."""
        earlier = [self.earlier.path] if self.earlier else []
        return [*self.plan.files, self.model, *earlier]

    @property
    def record(self) -> dict[str, Any]:
        """Return everything that decides what is written."""
        earlier = {"earlier": digest([self.earlier.path / MANIFEST_FILE])} if self.earlier else {}
        return {
            "job": "embed",
            "options": self.options.decisive,
            "model": [self.digest, self.metadata["model_commit"]],
            "files": self.stamps,
            "shards": hashlib.sha256(repr(self.plan.shards).encode()).hexdigest()[:16],
            "block_rows": pieces.PIECE_ROWS,
            **earlier,
            "versions": versions(),
        }


def open_job(options: EmbedOptions) -> EmbedJob:
    """Check everything that a user can get wrong, before a worker starts."""
    plan = _plan(options)
    if plan.id_column is None and sources.all_have_integers(plan):
        plan = replace(plan, id_column=ID_COLUMN)
    model = fetch_model(options.model)
    encoder = SentenceEncoder.from_pretrained(
        model, options.template, options.readout, attention=options.attention
    )
    no_template, no_dimensions = options.template is None, options.truncate_dim is None
    for note in unread_notes(model, prompts=no_template, dimensions=no_dimensions):
        say(note)
    # A setting of the attention decides the library too.
    backend: Backend = options.backend if options.attention == "auto" else "torch"
    if backend != options.backend and options.precision == "auto" and has_int8(model):
        say(f"note: --attention {options.attention} is for torch: the int8 graph is not used")
    options = replace(options, backend=choose_library(backend, encoder, options.precision))
    dimension = options.truncate_dim or encoder.dimension
    if dimension > encoder.dimension:
        raise UserError(
            f"truncate_dim is {dimension} and the model's vectors have {encoder.dimension} "
            "dimensions: give at most that many"
        )
    normalize = options.normalize or encoder.pooling.normalize
    storage = Storage(
        dimension,
        options.dtype,
        normalize,
        passthrough_types(plan),
        id_type=plan.id_type,
        passages=options.passages is not None,
    )
    job = EmbedJob(options, plan, model, model_digest(model), encoder, storage)
    return job if options.update is None else _updating(job, open_earlier(options.update))


def _updating(job: EmbedJob, earlier: Embeddings) -> EmbedJob:
    """Return the job with the embeddings that it updates; UserError if they do not fit."""
    check_same(earlier, described(job.options, job.plan, job.metadata))
    check_types(earlier, job.storage.schema)
    if job.options.keep_gone and job.plan.id_column is None:
        raise UserError(
            "keep_gone needs ids that stay with their rows, and the ids are row numbers, which "
            "move when a line is added or removed: name an --id-column, or leave --keep-gone out"
        )
    return replace(job, earlier=earlier)


def _plan(options: EmbedOptions) -> ReadPlan:
    plan = sources.plan(
        options.inputs,
        options.text_column,
        options.id_column,
        SHARD_BYTES,
        keep=options.keep,
        encoding=options.encoding,
        delimiter=options.delimiter,
        limit=options.limit,
        wrapped=options.wrapped,
        whole_files=options.documents is not None,
    )
    check_reading(plan)
    shards = join_small_files(plan.shards, SHARD_BYTES, pieces.PIECE_ROWS)
    return replace(plan, shards=shards, clean=cleaning(options.clean))


def passthrough_types(plan: ReadPlan) -> tuple[tuple[str, Any], ...]:
    """Return each passed-through column with its Arrow type.

    It is the type in the files if all files have types, otherwise text: csv has no types, and those
    of JSON may change from row to row. Raises UserError if two files disagree.
    """
    known = plan.found.types
    if not plan.keep or not all(name in known for name in plan.files):
        return tuple((column, pa.string()) for column in plan.keep)
    types = {column: _plain(known[plan.files[0]][column]) for column in plan.keep}
    for name in plan.files[1:]:
        for column, kind in types.items():
            found = _plain(known[name][column])
            if found != kind:
                raise UserError(
                    f"column {column!r} is {kind} in {plan.files[0]!r} and {found} in {name!r}: "
                    "give files with the same type, or leave the column out of --keep"
                )
    return tuple(types.items())


def _plain(kind: Any) -> Any:
    """Return the type of a dictionary's values, and string for text types of any width."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    wide = pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    return pa.string() if wide else kind
