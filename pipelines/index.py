"""cotbert index: make a FAISS index of a finished embeddings folder.

The folder OUTPUT holds `index.faiss`, a manifest that names the model for queries, and result.json.
It gets its name when it is complete.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from cotbert_core import __version__
from cotbert_core.errors import UserError
from cotbert_core.files import atomic_folder, write_json
from pipelines.searching import faiss_index
from pipelines.searching.embeddings import Embeddings
from pipelines.searching.options import IndexOptions
from pipelines.storage.corpus import MANIFEST_FILE
from pipelines.storage.output_folder import RESULT_FILE, require_empty


def index(embeddings: str | Path, output: Path, options: IndexOptions) -> dict[str, Any]:
    """Write the folder `output` and return its result; UserError for a bad folder or option."""
    output = require_empty(output)
    faiss_index.require()
    opened = Embeddings.open(embeddings)
    started = time.monotonic()
    with atomic_folder(output) as folder:
        left_out = faiss_index.write(opened, folder, options)
        rows = len(opened) - left_out
        if not rows:
            raise UserError(
                f"none of the {left_out} rows has a direction (all are zeros, null or NaN): embed "
                "the texts again"
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


def _manifest(
    embeddings: Embeddings, options: IndexOptions, rows: int, left_out: int
) -> dict[str, Any]:
    return {
        "format": 1,
        "index": {"format": "faiss", **vars(options)},
        "rows": rows,
        "left_out": left_out,
        **({"ids": faiss_index.IDS_FILE} if embeddings.text_ids else {}),
        "made_of": str(embeddings.path),
        "embeddings": embeddings.manifest,
        "versions": {"cotbert": __version__},
    }
