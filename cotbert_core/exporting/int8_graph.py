"""The int8 graph of a model folder, and the record that says from which weights it was made.

cotbert_core/exporting/quantization.py makes it, openvino_model.py runs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cotbert_core.encoder.locations import (
    GRAPH_FILE,
    INT8_FOLDER,
    OF_TORCH,
    locate_encoder,
    model_digest,
)
from cotbert_core.errors import UserError
from cotbert_core.files import digest, read_json, read_object, write_json

RECORD_FILE = "quantization.json"
# The keys of the record: the digest of the files from which the graph was made, and of its own.
MADE_FROM, DIGEST = "made_from", "digest"


def has_int8(name: str) -> bool:
    """Return whether an encoder NAME has an int8 graph, damaged or of whatever weights."""
    return (Path(locate_encoder(name)) / INT8_FOLDER).is_dir()


def int8_graph(name: str) -> Path | None:
    """Return the int8 graph of an encoder NAME, or None if it has none.

    Raises UserError if its files are damaged, or if it was made from other weights or another
    template than the folder has. To know that, all weights are read: 0.1 s for 90 MB.
    """
    if not has_int8(name):
        return None
    folder = Path(locate_encoder(name))
    graph = folder / INT8_FOLDER / GRAPH_FILE
    fault = _fault(name, graph)
    if fault:
        raise UserError(
            f"the int8 graph of {str(folder)!r} {fault}: remove its folder {INT8_FOLDER}, or make "
            "it again with `cotbert quantize`"
        )
    return graph


def _fault(name: str, graph: Path) -> str | None:
    """Return what is wrong with an encoder's graph; None if it can be used."""
    try:
        record, found = read_object(graph.with_name(RECORD_FILE)), _digest(graph)
    except (UserError, OSError):
        return "is damaged"
    if record.get(DIGEST, found) != found:  # graphs of earlier versions have none
        return "is damaged"
    if record.get(MADE_FROM) != model_digest(name, OF_TORCH):
        return "was made from other weights than the folder holds"
    return None


def _digest(graph: Path) -> str:
    return digest([graph, graph.with_suffix(".bin")])


def save_int8(graph: Any, folder: Path) -> None:
    """Write a graph into the model folder that holds the weights that it was made from."""
    import openvino

    place = folder / INT8_FOLDER
    place.mkdir()
    openvino.save_model(graph, place / GRAPH_FILE, compress_to_fp16=False)
    made_from = model_digest(str(folder), OF_TORCH)
    write_json(place / RECORD_FILE, {MADE_FROM: made_from, DIGEST: _digest(place / GRAPH_FILE)})


def record_facts(folder: Path, facts: Mapping[str, Any]) -> None:
    """Add facts on the graph of a model folder to its record."""
    path = folder / INT8_FOLDER / RECORD_FILE
    write_json(path, {**read_json(path), **facts})
