"""cotbert export: write an encoder in another format, as a folder that is complete or absent.

onnx: a graph and a tokenizer.json, which onnxruntime and tokenizers run without torch; its vectors
are compared with the encoder's before the folder gets its name. folder: the safetensors folder that
training writes, for any encoder; the files of an encoder that was only a pickle, as safetensors.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.encoder.pooling_files import load_pooling_config
from cotbert_core.encoder.prefixes import prefix_length
from cotbert_core.encoder.pretrained import no_loading_report, open_pretrained
from cotbert_core.encoder.prompts import DOCUMENT, QUERY
from cotbert_core.errors import UserError, require_packages
from cotbert_core.exporting.int8_graph import has_int8
from cotbert_core.files import atomic_folder, write_text
from cotbert_core.saving.model_card import onnx_card
from cotbert_core.saving.model_folder import make_readable
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.templates.template_texts import Template
from pipelines.exporting.source_files import copy_source_files
from pipelines.options.jobs import ExportOptions
from pipelines.recording import tracking
from pipelines.recording.fetching import fetch_model
from pipelines.runtime.progress import say, shown_warnings
from pipelines.storage.output_folder import require_empty
from pipelines.storage.resumable_output import locked_output

# Largest difference of any number of a vector from what `encode` gives in fp32.
ALLOWED = 1e-4
# Texts whose lengths and characters a wrong graph or tokenizer would get wrong, in one batch.
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
    """The exported graph gives wrong vectors: exit status 1."""


def export(options: ExportOptions, output: Path) -> dict[str, Any]:
    """Write the folder and return the result; UserError if the encoder cannot be exported."""
    output = require_empty(output)
    if options.format == "onnx":
        require_packages("format onnx", ("onnx", "onnxruntime"), "onnx")
    model = fetch_model(options.model)
    encoder = SentenceEncoder.from_pretrained(
        model, options.template, options.readout, allow_pickle=options.allow_pickle
    )
    if options.format == "onnx":
        _check_exportable(options.model, encoder)
        _report_prompts(encoder.saved().prompts)
    if has_int8(model):
        say(f"note: the int8 graph of {options.model} is not exported, only its weights in torch")
    tracked = tracking.tracked_run("export", vars(options), output=output)
    with locked_output(output), tracked as run:
        result: dict[str, Any] = {"format": options.format, "dimension": encoder.dimension}
        if options.format == "folder" and _is_converted(options, model):
            _convert(encoder.backbone, output)
        elif options.format == "folder":
            with atomic_folder(output) as folder:
                with shown_warnings():
                    encoder.save_pretrained(folder)
                if options.template is None and options.readout is None:
                    copy_source_files(model, folder)
        else:
            result["largest_difference"] = _write_onnx(encoder, output)
            run.metrics({"largest_difference": result["largest_difference"]})
    files = [path for path in output.rglob("*") if path.is_file()]
    return {**result, "megabytes": sum(path.stat().st_size for path in files) / 1e6}


def _is_converted(options: ExportOptions, model: str) -> bool:
    """Return whether only the format of the weights changes: no pooling is given or known."""
    given = options.template is not None or options.readout is not None
    return options.allow_pickle and not given and not load_pooling_config(model)


def _convert(backbone: Backbone, output: Path) -> None:
    """Write the encoder as transformers does, with its masked-language-model head if it has one."""
    from transformers import AutoModelForMaskedLM

    model = backbone.model
    wanted = {"dtype": torch.float32, "output_loading_info": True}
    with suppress(UserError), no_loading_report():  # a family without such a head
        whole, found = open_pretrained(
            AutoModelForMaskedLM, backbone.name, allow_pickle=True, **wanted
        )
        if not found["missing_keys"]:
            setattr(whole, whole.base_model_prefix, model)  # it has the pooler too
            whole.tie_weights()
            model = whole
    with atomic_folder(output) as folder:
        model.save_pretrained(folder)
        backbone.tokenizer.hf.save_pretrained(folder)
        make_readable(folder)


def _check_exportable(name: str, encoder: SentenceEncoder) -> None:
    if encoder.pooling.denoise != "none":
        raise UserError(
            f"model {name!r} subtracts a template's bias from its vectors (denoise is "
            f"{encoder.pooling.denoise!r}), which a single ONNX graph cannot do: use "
            "`cotbert embed`, or train with method.denoise=none"
        )
    if encoder.pooling.empty_blank and encoder.backbone.tokenizer.byte_level:
        raise UserError(
            f"model {name!r} replaces an empty text by a blank, which a tokenizer.json cannot: use "
            "`cotbert embed`, or train with method.empty_sentence=bare"
        )
    if prefix_length(encoder.backbone.model):
        raise UserError(
            f"model {name!r} attends to trained prefixes, which the graph would leave out: use "
            "`cotbert embed`, or train another method"
        )
    if words := encoder.saved().early_words:
        raise UserError(
            f"model {name!r} has {words[0]!r} in its vocabulary as a word that is found before "
            "texts change, and the exported tokenizer.json would divide texts there: use `cotbert "
            "embed`"
        )
    if encoder.pooling.last:
        raise UserError(
            f"model {name!r} has trained tokens at the last occurrence of a word, which a "
            "tokenizer.json cannot find: use `cotbert embed`, or train with "
            "method.replaced=template"
        )


def _report_prompts(prompts: Mapping[str, str]) -> None:
    """Show a note if queries have a prompt of their own: a tokenizer can add only one."""
    if prompts:
        query, others = prompts[QUERY], prompts[DOCUMENT]
        how = f"with the prompt {others!r}" if others else "without a prompt"
        say(
            f"note: the exported tokenizer reads every text {how}; for queries, which have the "
            f"prompt {query!r}, export another folder with --template {query + Template.slot!r}"
        )


def _write_onnx(encoder: SentenceEncoder, output: Path) -> float:
    """Write the folder after checking its graph; return the largest difference of a number."""
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
    """Return (N, D) vectors of (N,) texts by onnxruntime and tokenizers, as the card describes."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # its import would send usage data
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
