"""What `cotbert embed --update DIR` checks before it starts, and counts after the last block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cotbert_core.errors import UserError, first_line
from cotbert_core.files import absolute_path
from cotbert_core.messages.printable import shortened
from pipelines.embedding.blocks import BlockLedger, block_name
from pipelines.embedding.digests import (
    PartDigests,
    check_unique,
    part_counts,
    read_digests,
    write_described_part,
)
from pipelines.embedding.earlier_rows import EarlierRows
from pipelines.embedding.embeddings import Embeddings
from pipelines.embedding.manifest import VOCABULARY_KEYS
from pipelines.embedding.options import ID_COLUMN, EmbedOptions
from pipelines.reading.data_folder import DATA_FOLDER, DIGESTS_FOLDER
from pipelines.storage.resumable_output import ResumableOutput, locked_output

# What may differ between a job and the embeddings it updates: where the same model lies.
_PLACES = ("model", "model_source")


def earlier_rows(opened: Embeddings, scratch: Path) -> EarlierRows:
    return EarlierRows(opened.path, scratch, tuple(part.name for part in opened.parts))


def open_earlier(path: Path) -> Embeddings:
    """Open the embeddings to update; UserError unless they are finished and complete."""
    folder = absolute_path(path)
    if folder.with_name(folder.name + ".lock").exists():
        with locked_output(folder):  # raises if another job is writing the folder
            pass
    if not folder.exists() and folder.with_name(folder.name + ".partial").exists():
        raise UserError(
            f"the embeddings to update, {str(path)!r}, are unfinished: give their `cotbert embed` "
            "command again first"
        )
    opened = Embeddings.open(folder)
    _check_digests(opened)
    return opened


def _check_digests(opened: Embeddings) -> None:
    """Raise UserError unless each part has its file of digests, and no id is there twice."""
    ids = []
    starts = zip(opened.parts, opened.starts, opened.starts[1:], strict=False)
    for part, start, stop in starts:
        file = opened.path / DIGESTS_FOLDER / part.name
        try:
            table = read_digests(file)[0]
        except (OSError, KeyError, ValueError, pa.ArrowException) as error:
            raise UserError(
                f"the embeddings to update lack {str(file)!r} ({first_line(error)}), as those of "
                "versions before --update do: embed all of the input once, without --update"
            ) from None
        if len(table) != stop - start:
            raise UserError(
                f"{str(file)!r} has {len(table)} rows and its part {stop - start}: embed all of "
                "the input once, without --update"
            )
        ids.append(table[ID_COLUMN])
    if opened.manifest.get("id_column") is not None:
        check_unique(ids, f"the embeddings to update, {str(opened.path)!r},")


def check_same(earlier: Embeddings, facts: Mapping[str, Any]) -> None:
    """Raise UserError if a job's vectors would not be comparable with the earlier ones.

    facts: the entries of the job's manifest that describe its vectors and columns. What precision
    "auto" stands for is known only when a worker has opened the encoder.
    """
    before = earlier.manifest
    may_differ = {*(_PLACES if facts["model_digest"] else _PLACES[1:])}
    may_differ |= {"precision"} if facts["precision"] == "auto" else set()
    may_differ |= {"full_stop"} - before.keys()  # not recorded until November 2026
    # What not all vectors have: computed in int8, of cleaned texts, of whole files.
    keys = dict.fromkeys([*facts, "computed_in", "clean", "documents"])
    other = [key for key in keys if key not in may_differ and facts.get(key) != before.get(key)]
    if not other:
        return
    shown = (
        f"{key} {shortened(repr(before.get(key)), 60)} there and "
        f"{shortened(repr(facts.get(key)), 60)} here"
        for key in other
    )
    raise UserError(
        f"the embeddings to update, {str(earlier.path)!r}, were made otherwise: "
        f"{', '.join(shown)}: give the same model and options, or embed without --update"
    )


def check_types(earlier: Embeddings, schema: pa.Schema) -> None:
    """Raise UserError if a column of the job has another type than in the earlier embeddings, whose
    parts may be linked into the new ones. `check_same` has compared the names of the columns."""
    pq.write_table(schema.empty_table(), written := pa.BufferOutputStream())
    # As Parquet stores them: it has no seconds, for example.
    for field in pq.read_schema(pa.BufferReader(written.getvalue())):
        before = earlier.schema.field(field.name).type
        if field.type != before:
            raise UserError(
                f"column {field.name!r} is {before} in the embeddings to update, "
                f"{str(earlier.path)!r}, and {field.type} in the input: give it the type that it "
                "had, or embed without --update"
            )


def share_of_earlier(opened: Embeddings, taken_over: int) -> tuple[Counter[str], set[str]]:
    """Return the vocabulary counts of the rows that were taken over, as a share of those of all
    rows of the embeddings, and the precisions in which these were computed."""
    share, before = taken_over / len(opened), opened.manifest.get("vocabulary", {})
    vocabulary = Counter({key: round(share * before.get(key, 0)) for key in VOCABULARY_KEYS})
    precisions = set(opened.manifest.get("precision", "auto").split(", "))
    return vocabulary, precisions if taken_over else set()


def finish_update(
    opened: Embeddings,
    work: ResumableOutput,
    shards: int,
    options: EmbedOptions,
    ledger: BlockLedger,
) -> tuple[dict[str, int], Counter[str]]:
    """Return how many rows are taken_over, new, changed and gone, and the counts of the rows that
    are gone from the input and kept.

    opened: the embeddings to update. taken_over: their text was embedded before. changed: only
    their id was there before. gone: their id is in no row of the input, not even in a skipped one.
    Row numbers are no ids that stay with their rows: without an id column, rows are gone whose
    text is, and none is changed. shards: the number of the input's shards; kept rows go to parts
    after those.
    """
    earlier = earlier_rows(opened, work.scratch)
    by_id = opened.manifest.get("id_column") is not None
    key = ID_COLUMN if by_id else "digest"
    keys, known = [], []
    for file in sorted((work.output / DIGESTS_FOLDER).iterdir()):
        if file.name >= f"part-{block_name(shards, 0)}":  # of kept rows, by an earlier run
            break
        table = read_digests(file)[0]
        keys.append(table[key])
        known.append(earlier.find(table["digest"]) >= 0)
    if by_id:
        check_unique(keys, "the rows of the input")
    chunks = [chunk for column in keys for chunk in column.chunks]
    now = pa.chunked_array(chunks)
    skipped = ledger.skipped_ids() if by_id else []
    present = pa.chunked_array([*chunks, pa.array(skipped, now.type)])
    columns = (earlier.digests(part)[key] for part in earlier.parts)
    before = pa.chunked_array([chunk for column in columns for chunk in column.chunks])
    taken = np.concatenate(known)
    changed = int((~taken & pc.is_in(now, before).to_numpy()).sum())
    gone = len(before) - pc.sum(pc.is_in(before, present)).as_py()
    counts = {
        "taken_over": int(taken.sum()),
        "new": len(taken) - int(taken.sum()) - changed,
        "changed": changed,
        "gone": gone,
    }
    keep = options.keep_gone and gone
    kept = _keep_gone(earlier, present, work, shards, options) if keep else Counter[str]()
    return counts, kept


def _keep_gone(
    earlier: EarlierRows,
    present: pa.ChunkedArray,
    work: ResumableOutput,
    shards: int,
    options: EmbedOptions,
) -> Counter[str]:
    """Write the rows whose ids are not `present` to parts of their own; return their counts."""
    total: Counter[str] = Counter()
    for number, name in enumerate(earlier.parts):
        described = earlier.digests(name)
        left = pc.invert(pc.is_in(described[ID_COLUMN], present))
        described = described.filter(left)
        if not len(described):
            continue
        new = f"part-{block_name(shards, number)}.parquet"
        table = pq.read_table(earlier.folder / DATA_FOLDER / name).filter(left)
        long = described["long"].to_numpy()
        counts = part_counts(table, long, 0, options)
        kept = PartDigests(described["digest"].to_pylist(), long, f"kept {name}", counts)
        write_described_part(work.output, work.scratch, new, table, kept)
        total.update(counts, taken_over=len(table))
    return total
