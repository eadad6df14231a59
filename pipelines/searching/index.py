"""cotbert index: make a FAISS index of a finished embeddings folder.

The folder OUTPUT holds `index.faiss`, a manifest that names the model for queries, and result.json.
It gets its name when it is complete.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from cotbert_core import __version__
from cotbert_core.errors import UserError
from cotbert_core.files import atomic_folder, write_json
from pipelines.embedding.digests import unchanged_ids
from pipelines.embedding.embeddings import Embeddings
from pipelines.searching import faiss_index
from pipelines.searching.index_update import extend, open_for_update
from pipelines.searching.options import FACTORY, IndexOptions
from pipelines.storage.corpus import MANIFEST_FILE
from pipelines.storage.output_folder import RESULT_FILE, require_empty
from pipelines.storage.resumable_output import locked_output


def index(
    embeddings: str | Path, output: Path, options: IndexOptions, update: Path | None = None
) -> dict[str, Any]:
    """Write the folder `output` and return its result; UserError for a bad folder or option.

    update: an index of earlier embeddings; the new one is a copy of it, with its options, plus the
    new rows.
    """
    output = require_empty(output)
    faiss_index.require()
    opened = Embeddings.open(embeddings)
    started = time.monotonic()
    old, change = None, dict[str, int]()
    if update is None:
        options = replace(options, factory=options.factory or FACTORY)
    else:
        if options != IndexOptions():
            raise UserError(
                f"--update takes the options of {str(update)!r}, and others are given: leave "
                "--factory, --sample and --seed out"
            )
        old, options = open_for_update(update, opened)
        unchanged = unchanged_ids(old.made_of, opened.path)
    with locked_output(output), atomic_folder(output) as folder:
        if old is None:
            left_out = faiss_index.write(opened, folder, options)
        else:
            left_out, change = extend(old, opened, unchanged, folder, options)
        rows = len(opened) - left_out
        if not rows:
            raise UserError(
                f"none of the {left_out} rows has a direction (all are zeros, null or NaN): embed "
                "the texts again"
            )
        write_json(folder / MANIFEST_FILE, _manifest(opened, options, rows, left_out))
        result = {
            "factory": options.factory,
            "rows": rows,
            "left_out": left_out,
            **change,
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
        **({"passages": True} if embeddings.has_passages else {}),
        "made_of": str(embeddings.path),
        "embeddings": embeddings.manifest,
        "versions": {"cotbert": __version__},
    }
