"""An encoder as one ONNX graph, from token ids to finished sentence vectors.

The template is not part of the graph: the tokenizer adds it, as in a saved folder. The other files
are those that ONNX servers need (cotbert_core.saving.server_files). Letters: N rows, L tokens, D
hidden size.
"""

from __future__ import annotations

import copy
import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.encoder.heads import Head, apply_head
from cotbert_core.encoder.pooling import READOUTS
from cotbert_core.saving.model_folder import copy_embedding, template_tokenizer
from cotbert_core.saving.server_files import save_tokenizer, serve_graph
from cotbert_core.sentence_encoder import SentenceEncoder

INPUTS = ("input_ids", "attention_mask")
OUTPUT = "sentence_embedding"
# 17 has LayerNormalization as one node; every ONNX Runtime since 1.12 supports it.
OPSET = 17


class FinishedVectors(nn.Module):
    """A model from ids and attention mask (N, L) to vectors (N, D): encoder, readout, head.

    read_id: id of the token that is read by the readout mask. normalize: scale to unit length.
    """

    def __init__(
        self, backbone: Backbone, readout: str, read_id: int, head: Head | None, normalize: bool
    ) -> None:
        super().__init__()
        self.model, self.start = backbone.model, backbone.position_start
        self.readout, self.read_id = readout, read_id
        self.head, self.normalize = head, normalize

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        # Padding is on the right, so positions are the same as in the unpadded row.
        positions = torch.arange(input_ids.shape[1], device=input_ids.device) + self.start
        hidden = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=positions.expand_as(input_ids),
            token_type_ids=torch.zeros_like(input_ids),
        ).last_hidden_state
        vectors = apply_head(self._read(hidden, input_ids, attention_mask), None, self.head)
        return nn.functional.normalize(vectors, dim=-1) if self.normalize else vectors

    def _read(self, hidden: Tensor, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        place = (input_ids == self.read_id).to(torch.int64).argmax(1)
        if self.readout != "mask":
            return READOUTS[self.readout](hidden, place, attention_mask.sum(1))
        # READOUTS["mask"] counts the rows, and the graph would have that number as a constant.
        index = place[:, None, None].expand(-1, 1, hidden.shape[-1])
        return hidden.gather(1, index).squeeze(1)


def write_graph(encoder: SentenceEncoder, folder: Path) -> None:
    """Write model.onnx, its tokenizer and the files for servers; denoise must be none."""
    # Its tokenizer.json adds the prompt of texts to every text, even to one that begins with the
    # prompt of queries.
    texts = replace(encoder.saved(), pooling=replace(encoder.pooling, query=None))
    tokenizer, read_token = template_tokenizer(texts, encoder.bound)
    read_id = -1 if read_token is None else tokenizer.convert_tokens_to_ids(read_token)
    backbone = copy.copy(encoder.backbone)
    backbone.model = copy.deepcopy(encoder.backbone.model).cpu().eval().float()
    # Attention in plain operators: exporters convert the fused operator in different ways.
    backbone.attention = "eager"
    backbone.model.set_attn_implementation(backbone.attention)
    if encoder.bound.stages > 1 and read_token is not None:
        copy_embedding(backbone.model, encoder.bound.mask_id, read_id)
    head = copy.deepcopy(encoder.head).cpu().eval() if encoder.head is not None else None
    graph = FinishedVectors(
        backbone, encoder.pooling.readout, read_id, head, encoder.pooling.normalize
    )
    _export(graph.eval(), folder / "model.onnx")
    _save_tokenizer(tokenizer, folder)
    backbone.model.config.save_pretrained(str(folder))
    serve_graph(folder, backbone.hidden_size, tokenizer.model_max_length)


def _export(graph: FinishedVectors, path: Path) -> None:
    """Export with TorchScript: torch 2.13's other exporter needs onnxscript and two packages."""
    ids = torch.full((2, 7), max(graph.read_id, 0))
    attended = torch.ones_like(ids)
    attended[1, 5:] = 0
    dynamic = {name: {0: "texts", 1: "tokens"} for name in INPUTS} | {OUTPUT: {0: "texts"}}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # warnings that the exporter is old, and about tracing
        torch.onnx.export(
            graph,
            (ids, attended),
            str(path),
            input_names=list(INPUTS),
            output_names=[OUTPUT],
            dynamic_axes=dynamic,
            opset_version=OPSET,
            dynamo=False,
        )


def _save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Write a tokenizer that also cuts and pads, for use by the library tokenizers alone.

    It finds no special tokens in a text, not even one that is missing in the vocabulary: the graph
    finds the token that is read by its id.
    """
    save_tokenizer(tokenizer, folder)
    path = folder / "tokenizer.json"
    backend = Tokenizer.from_file(str(path))
    backend.enable_truncation(tokenizer.model_max_length)
    backend.enable_padding(pad_id=tokenizer.pad_token_id, pad_token=tokenizer.pad_token)
    rules = json.loads(backend.to_str())
    rules["added_tokens"] = [token for token in rules["added_tokens"] if not token["special"]]
    path.write_text(json.dumps(rules, ensure_ascii=False), encoding="utf-8")
