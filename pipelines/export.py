"""cotbert export: an encoder in another form, a folder that is whole or not there.

onnx: one graph and one tokenizer.json, which onnxruntime and tokenizers run without torch; it is
opened and compared with the encoder before the folder gets its name. folder: what training writes,
of any encoder, as safetensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np

from cotbert_core.errors import UserError, unknown
from cotbert_core.files import atomic_folder, write_text
from cotbert_core.saving.model_card import onnx_card
from cotbert_core.sentence_encoder import SentenceEncoder
from pipelines.recording import tracking
from pipelines.storage.output_folder import require_empty

FORMATS = ("onnx", "folder")
# Largest difference of any number of a vector from what `encode` gives in fp32.
ALLOWED = 1e-4
# Lengths and characters that a wrong graph or tokenizer would get wrong; padded in one batch.
CHECKED = (
    "One sentence.",
    "",
    "a typed [MASK], <mask> or [READOUT]",
    'She said "no"',
    "😀 naïve \u00a0 blanks",
    "A long sentence goes on and on " * 90,
    "Two dogs run across the green field while the children watch",
)


class ExportError(RuntimeError):
    """A graph that gives other vectors: exit status 1."""


@dataclass(frozen=True)
class ExportOptions:
    model: str
    format: str
    template: str | None = None
    readout: str | None = None
    allow_pickle: bool = False

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise unknown("format", self.format, FORMATS)


def export(options: ExportOptions, output: Path) -> dict[str, Any]:
    """Write the folder; UserError before anything is written for what cannot be carried."""
    output = require_empty(output)
    missing = [name for name in ("onnx", "onnxruntime") if util.find_spec(name) is None]
    if options.format == "onnx" and missing:
        raise UserError(
            f"format onnx needs {' and '.join(missing)}, to write and to try the graph: install "
            "the extra onnx (pip install 'cotbert[onnx]')"
        )
    encoder = SentenceEncoder.from_pretrained(
        options.model, options.template, options.readout, allow_pickle=options.allow_pickle
    )
    if options.format == "onnx":
        _check_carried(options.model, encoder)
    with tracking.tracked_run("export", vars(options)) as run:
        result: dict[str, Any] = {"format": options.format, "dimension": encoder.dimension}
        if options.format == "folder":
            encoder.save_pretrained(output)
        else:
            result["largest_difference"] = _write_onnx(encoder, output)
            run.metrics({"largest_difference": result["largest_difference"]})
    files = [path for path in output.rglob("*") if path.is_file()]
    return {**result, "megabytes": sum(path.stat().st_size for path in files) / 1e6}


def _check_carried(name: str, encoder: SentenceEncoder) -> None:
    if encoder.pooling.denoise != "none":
        raise UserError(
            f"model {name!r} takes a template's bias off its vectors (denoise is "
            f"{encoder.pooling.denoise!r}), which an ONNX graph of one pass does not carry: use "
            "`cotbert embed`, or train with method.denoise=none"
        )
    if encoder.pooling.empty_blank and encoder.backbone.tokenizer.byte_level:
        raise UserError(
            f"model {name!r} gives an empty text a blank, which no tokenizer.json can add: use "
            "`cotbert embed`, or train with method.empty_sentence=bare"
        )
    if encoder.pooling.last:
        raise UserError(
            f"model {name!r} has trained tokens where a word of a text occurs last, which no "
            "tokenizer.json can find: use `cotbert embed`, or train with method.replaced=template"
        )


def _write_onnx(encoder: SentenceEncoder, output: Path) -> float:
    """The folder, whose graph gave our vectors; the largest difference that was seen."""
    from cotbert_core.exporting.onnx_graph import write_graph

    with atomic_folder(output) as folder:
        write_graph(encoder, folder)
        write_text(folder / "README.md", onnx_card(encoder.saved()))
        found = run_onnx(folder, CHECKED)
        expected = encoder.encode(CHECKED, precision="fp32", normalize=encoder.pooling.normalize)
        difference = float(np.abs(found - expected).max())
        if not difference <= ALLOWED:
            raise ExportError(
                f"the ONNX graph differs from the encoder by {difference:.2g}, more than {ALLOWED}"
            )
    return difference


def run_onnx(folder: Path, texts: Sequence[str]) -> np.ndarray:
    """(N,) texts -> (N, D) by onnxruntime and tokenizers alone, as the folder's card says."""
    import onnxruntime
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    rows = tokenizer.encode_batch(list(texts))
    inputs = {
        "input_ids": np.array([row.ids for row in rows]),
        "attention_mask": np.array([row.attention_mask for row in rows]),
    }
    return np.asarray(session.run(None, inputs)[0])
