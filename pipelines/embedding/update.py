"""What `cotbert embed --update DIR` checks before it starts, and counts after the last block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cotbert_core.errors import UserError, first_line
from cotbert_core.files import digest
from pipelines.embedding.blocks import block_name
from pipelines.embedding.digests import (
    DIGESTS_FOLDER,
    PartDigests,
    check_unique,
    part_counts,
    read_digests,
    write_described_part,
)
from pipelines.embedding.earlier_rows import EarlierRows
from pipelines.embedding.options import ID_COLUMN, OnLong
from pipelines.reading.data_folder import DATA_FOLDER
from pipelines.searching.embeddings import Embeddings
from pipelines.storage.corpus import MANIFEST_FILE
from pipelines.storage.resumable_output import locked_output

# What may differ between a job and the embeddings it updates: where the same model lies.
_PLACES = ("model", "model_source")


@dataclass(frozen=True)
class Earlier:
    """The embeddings that a job updates."""

    opened: Embeddings

    @property
    def stamp(self) -> str:
        """A hash of the manifest, by which a continued job knows that they are still the same."""
        return digest([self.opened.path / MANIFEST_FILE])

    @property
    def scale(self) -> tuple[float, ...] | None:
        scale = self.opened.scale
        return None if scale is None else tuple(map(float, self.opened.manifest["scale"]))

    def rows(self, scratch: Path) -> EarlierRows:
        return EarlierRows(self.opened.path, scratch, tuple(p.name for p in self.opened.parts))


def open_earlier(path: Path) -> Earlier:
    """Open the embeddings to update; UserError unless they are finished and complete."""
    folder = path.expanduser().absolute()
    if folder.with_name(folder.name + ".lock").exists():
        with locked_output(folder):  # raises if another job is writing the folder
            pass
    if not folder.exists() and folder.with_name(folder.name + ".partial").exists():
        raise UserError(
            f"the embeddings to update, {str(path)!r}, are unfinished: give their `cotbert embed` "
            "command again first"
        )
    earlier = Earlier(Embeddings.open(folder))
    _check_digests(earlier.opened)
    return earlier


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


def check_same(earlier: Earlier, facts: Mapping[str, Any]) -> None:
    """Raise UserError if a job's vectors would not be comparable with the earlier ones.

    facts: the entries of the job's manifest that describe its vectors and columns.
    """
    before = earlier.opened.manifest
    places = _PLACES if facts["model_digest"] else _PLACES[1:]
    other = [key for key in facts if key not in places and facts[key] != before.get(key)]
    if not other:
        return
    shown = (
        f"{key} {_short(before.get(key))} there and {_short(facts[key])} here" for key in other
    )
    raise UserError(
        f"the embeddings to update, {str(earlier.opened.path)!r}, were made otherwise: "
        f"{', '.join(shown)}: give the same model and options, or embed without --update"
    )


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def finish_update(
    earlier: Earlier,
    output: Path,
    scratch: Path,
    shards: int,
    on_long: OnLong,
    *,
    keep_gone: bool,
) -> tuple[dict[str, int], Counter[str]]:
    """Return how many rows are taken_over, new, changed and gone, and the counts of the rows that
    are gone from the input and kept.

    taken_over: their text was embedded before. changed: only their id was there before. shards:
    the number of the input's shards; kept rows go to parts after those.
    """
    rows = earlier.rows(scratch)
    ids, known = [], []
    for file in _files_of_input(output, shards):
        table = read_digests(file)[0]
        ids.append(table[ID_COLUMN])
        known.append(rows.find(table["digest"]) >= 0)
    if earlier.opened.manifest.get("id_column") is not None:
        check_unique(ids, "the rows of the input")
    now = pa.chunked_array([chunk for column in ids for chunk in column.chunks])
    before = pa.chunked_array([c for t in rows.digest_tables() for c in t[ID_COLUMN].chunks])
    taken = np.concatenate(known)
    changed = int((~taken & pc.is_in(now, before).to_numpy()).sum())
    gone = len(before) - pc.sum(pc.is_in(before, now)).as_py()
    counts = {
        "taken_over": int(taken.sum()),
        "new": len(taken) - int(taken.sum()) - changed,
        "changed": changed,
        "gone": gone,
    }
    kept = _keep_gone(rows, now, output, scratch, shards, on_long) if keep_gone and gone else {}
    return counts, Counter(kept)


def _files_of_input(output: Path, shards: int) -> Iterator[Path]:
    """Yield the files of digests without those of kept rows, which an earlier run may have left."""
    for path in sorted((output / DIGESTS_FOLDER).iterdir()):
        if path.name < f"part-{block_name(shards, 0)}":
            yield path


def _keep_gone(
    rows: EarlierRows,
    now: pa.ChunkedArray,
    output: Path,
    scratch: Path,
    shards: int,
    on_long: OnLong,
) -> Counter[str]:
    """Write the rows whose ids are not in `now` to parts of their own; return their counts."""
    total: Counter[str] = Counter()
    for number, name in enumerate(rows.parts):
        described = read_digests(rows.folder / DIGESTS_FOLDER / name)[0]
        left = pc.invert(pc.is_in(described[ID_COLUMN], now))
        described = described.filter(left)
        if not len(described):
            continue
        new = f"part-{block_name(shards, number)}.parquet"
        table = pq.read_table(rows.folder / DATA_FOLDER / name).filter(left)
        long, clipped = described["long"].to_numpy(), described["clipped"].to_numpy()
        counts = part_counts(table, long, clipped, 0, on_long)
        digests = described["digest"].to_pylist()
        kept = PartDigests(digests, long, clipped, f"kept {name}", counts)
        write_described_part(output, scratch, new, table, kept)
        total.update(counts)
    return total
