"""cotbert index: a finished embeddings folder as a FAISS index or a Lance dataset.

The folder OUTPUT holds `index.faiss` or `vectors.lance`, a manifest that says which model a query
must be encoded by, and result.json. It has its name only when it is whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cotbert_core import __version__
from cotbert_core.errors import UserError, unknown
from cotbert_core.files import whole_folder, write_json
from pipelines.corpus import MANIFEST_FILE
from pipelines.outputs import RESULT_FILE, check_free
from pipelines.searching import faiss_index, lance_dataset
from pipelines.searching.embeddings import Embeddings
from pipelines.searching.options import IndexOptions

# Of each format: whether its package is there, and what writes it into a folder.
Writer = Callable[[Embeddings, Path, IndexOptions], int]
FORMATS: dict[str, tuple[Callable[[], Any], Writer]] = {
    "faiss": (faiss_index.require, faiss_index.write),
    "lance": (lance_dataset.require, lance_dataset.write),
}


def index(embeddings: str | Path, output: Path, options: IndexOptions) -> dict[str, Any]:
    """Write the folder `output` and return its result; UserError for a bad folder or option."""
    if options.format not in FORMATS:
        raise unknown("format", options.format, FORMATS)
    output = check_free(output)
    require, write = FORMATS[options.format]
    require()
    opened = Embeddings.open(embeddings)
    started = time.monotonic()
    with whole_folder(output) as folder:
        left_out = write(opened, folder, options)
        rows = len(opened) - left_out
        if not rows:
            raise UserError(
                f"none of the {left_out} rows has a direction (zeros, null or NaN): embed again"
            )
        write_json(folder / MANIFEST_FILE, _manifest(opened, options, rows, left_out))
        result = {
            "rows": rows,
            "left_out": left_out,
            "dimension": opened.dimension,
            "seconds": round(time.monotonic() - started, 3),
        }
        write_json(folder / RESULT_FILE, result)
    return result


def _has_ids_file(embeddings: Embeddings, options: IndexOptions) -> bool:
    return options.format == "faiss" and embeddings.text_ids


def _manifest(
    embeddings: Embeddings, options: IndexOptions, rows: int, left_out: int
) -> dict[str, Any]:
    given = vars(options) if options.format == "faiss" else {"format": options.format}
    return {
        "format": 1,
        "index": given,
        "rows": rows,
        "left_out": left_out,
        **({"ids": faiss_index.IDS_FILE} if _has_ids_file(embeddings, options) else {}),
        "made_of": str(embeddings.path),
        "embeddings": embeddings.manifest,
        "versions": {"cotbert": __version__},
    }
