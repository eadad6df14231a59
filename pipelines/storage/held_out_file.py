"""Read the documents that `cotbert prepare --hold-out` kept out of a corpus.

held-out.parquet holds a row for each query: document (int64, -1 without documents), query, target
(the document without the query), and split: dev queries choose steps and candidates, test queries
are for reports. Both are searched among the targets of all documents. Queries of one document are
in the same split.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal
from zlib import crc32

import numpy as np
import pyarrow as pa

from cotbert_core.errors import UserError
from cotbert_core.evaluation.held_out import HeldOut
from pipelines.reading.manifests import HELD_OUT_FILE
from pipelines.reading.parquet_batches import read_table
from pipelines.storage.corpus import is_prepared

COLUMNS = ("document", "query", "target", "split")
Split = Literal["dev", "test"]
# One query finds its target or does not, which is no rate.
LEAST_QUERIES = 2


def dev_half(texts: Sequence[str]) -> np.ndarray:
    """Return (N,) whether each of N texts is in the dev half: those with the smaller checksums.

    If texts are added or changed later, at most as many others change sides. Of documents that went
    to both halves in turn, in the order of hashes, 475 of 992 did, after 8 had changed.
    """
    order = np.argsort(
        [crc32(text.encode("utf-8", "surrogatepass")) for text in texts], kind="stable"
    )
    is_dev = np.zeros(len(texts), bool)
    is_dev[order[: (len(texts) + 1) // 2]] = True
    return is_dev


def has_held_out(corpus: str | Path) -> bool:
    """Return whether a corpus folder has held-out documents."""
    return (Path(corpus).expanduser() / HELD_OUT_FILE).is_file()


def read_held_out(corpus: str | Path, split: Split, least: int = LEAST_QUERIES) -> HeldOut:
    """Return the queries of one half of a corpus's held-out documents, with all targets.

    Raises UserError if there are fewer than `least` queries.
    """
    folder = Path(corpus).expanduser()
    if not has_held_out(folder):
        if not is_prepared(folder):
            raise UserError(
                f"corpus {str(folder)!r} is no folder made by `cotbert prepare`: check its name, "
                "or prepare it with --hold-out"
            )
        raise UserError(
            f"corpus {str(folder)!r} has no held-out documents: prepare it with --hold-out"
        )
    columns = _columns(folder / HELD_OUT_FILE)
    rows = np.flatnonzero([half == split for half in columns["split"]])
    if len(rows) < least:
        raise UserError(
            f"the held-out documents of corpus {str(folder)!r} have {len(rows)} {split} "
            f"{'query' if len(rows) == 1 else 'queries'}: "
            f"at least {least} are needed; prepare it with a larger --hold-out"
        )
    queries = [columns["query"][row] for row in rows]
    documents = np.array(columns["document"])
    by_document = len(documents) and documents[0] >= 0
    return HeldOut(queries, columns["target"], rows, documents if by_document else None)


def _columns(path: Path) -> dict[str, list[Any]]:
    try:
        table = read_table(path, list(COLUMNS))
    except (OSError, KeyError, pa.ArrowException) as error:
        raise UserError(
            f"{str(path)!r} is no file of held-out documents ({error}): prepare the corpus again "
            "with --hold-out"
        ) from None
    return {name: table[name].to_pylist() for name in COLUMNS}
