"""The Python blocks of a model card, which show how each library opens the card's folder."""

from __future__ import annotations

import json

from cotbert_core.encoder.pooling_config import PoolingConfig
from cotbert_core.messages.printable import printable

EXAMPLE = '["One sentence.", "Another one."]'
SENTENCE_TRANSFORMERS = f"""\
from sentence_transformers import SentenceTransformer

model = SentenceTransformer(".")
vectors = model.encode({EXAMPLE})
"""
OWN = f"""\
from cotbert_core import SentenceEncoder

encoder = SentenceEncoder.from_pretrained(".")
vectors = encoder.encode({EXAMPLE})
"""
_TRANSFORMERS = f"""\
import torch
from transformers import AutoModel, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(".")
model = AutoModel.from_pretrained(".").eval()
sentences = {EXAMPLE}
inputs = tokenizer(sentences, padding=True, truncation=True, return_tensors="pt")
with torch.no_grad():
    hidden = model(**inputs).last_hidden_state
"""
ONNX = f"""\
import numpy as np
import onnxruntime
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("tokenizer.json")
session = onnxruntime.InferenceSession("model.onnx")
rows = tokenizer.encode_batch({EXAMPLE})
ids = np.array([row.ids for row in rows])
mask = np.array([row.attention_mask for row in rows])
(vectors,) = session.run(None, {{"input_ids": ids, "attention_mask": mask}})
"""
_READOUT_LINES = {
    "cls": "vectors = hidden[:, 0]\n",
    "mean": (
        'attended = inputs["attention_mask"].unsqueeze(-1)\n'
        "vectors = (hidden * attended).sum(1) / attended.sum(1)\n"
    ),
}
_TANH_LINES = """\
from safetensors.torch import load_file

head = load_file("head.safetensors")
vectors = torch.tanh(vectors @ head["dense.weight"].T + head["dense.bias"])
"""


def transformers_lines(pooling: PoolingConfig, read_token: str | None) -> str:
    """Return the Python code that computes vectors with transformers alone."""
    if read_token is None:
        lines = _READOUT_LINES[pooling.readout]
    else:
        lines = (
            'read = inputs["input_ids"] == tokenizer.convert_tokens_to_ids('
            f"{printable(json.dumps(read_token, ensure_ascii=False))})\n"
            "vectors = hidden[read]\n"
        )
    if pooling.head == "tanh":
        lines += _TANH_LINES
    if pooling.normalize:
        lines += "vectors = torch.nn.functional.normalize(vectors, dim=-1)\n"
    return _TRANSFORMERS + lines


def serving_line(not_served: str | None, exportable: bool) -> str:
    """Return the card's sentence on inference servers.

    not_served: why they refuse the folder; None if they do not. exportable: whether `cotbert export
    --format onnx` supports the model.
    """
    if not_served is None:
        return "The servers text-embeddings-inference and vLLM give these vectors too.\n"
    refused = f"text-embeddings-inference and vLLM refuse this folder, since {not_served}"
    if not exportable:
        return f"{refused}: compute its vectors with `cotbert embed` or `cotbert_core`.\n"
    return (
        f"{refused}: to serve it, export it with `cotbert export . --format onnx --output DIR` and "
        "give DIR to text-embeddings-inference's ONNX Runtime image, and set no pooling by hand, "
        "which would give other vectors.\n"
    )


def block(title: str, code: str) -> str:
    return f"With {title}:\n\n```python\n{code}```\n\n"
