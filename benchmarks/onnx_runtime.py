"""Compare an exported graph in ONNX Runtime with SentenceEncoder.encode, thread for thread.

An ONNX Runtime backend for `embed` on CPUs would have to be as fast as torch in bf16. Both sort by
length and fill batches with the same number of padded tokens.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from tokenizers import Tokenizer

from benchmarks.harness import Row, first, interleave, least_cosine, number_formats
from cotbert_core.encoder.backbone import CPU_BATCH_TOKENS
from cotbert_core.encoder.length_batches import budget_slices
from cotbert_core.encoder.locations import MINILM
from cotbert_core.exporting.onnx_graph import write_graph
from cotbert_core.sentence_encoder import SentenceEncoder

SENTENCES = 500
TEMPLATE = "cot-bert/anchor"
LEAST_COSINE = 0.999


def run(texts: Sequence[str], rounds: int) -> list[Row]:
    """Return the seconds for 500 sentences: ONNX Runtime in fp32, torch in each number format."""
    chosen = first(texts, SENTENCES)
    encoder = SentenceEncoder.from_pretrained(MINILM, TEMPLATE)
    formats = number_formats()
    with tempfile.TemporaryDirectory() as scratch:
        write_graph(encoder, Path(scratch))
        graph = _Graph(Path(scratch))
        tasks = {"onnx": lambda _: graph.encode(chosen)}
        for p in formats:
            tasks[p] = lambda _, p=p: encoder.encode(chosen, precision=p)
        vectors = {name: task(0) for name, task in tasks.items()}
        seconds = interleave(tasks, rounds)
    return [
        Row(
            f"encode {SENTENCES} sentences in a template",
            "ONNX Runtime fp32",
            f"cotbert {p}",
            seconds["onnx"],
            seconds[p],
            check=f"least cosine {least_cosine(vectors['onnx'], vectors[p], LEAST_COSINE):.6f}",
        )
        for p in formats
    ]


class _Graph:
    def __init__(self, folder: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        providers = ["CPUExecutionProvider"]
        graph = os.fspath(folder / "model.onnx")
        self._session = onnxruntime.InferenceSession(graph, options, providers=providers)
        self._tokenizer = Tokenizer.from_file(os.fspath(folder / "tokenizer.json"))
        self._tokenizer.no_padding()

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Return the vectors (N, D) of N texts, in their order."""
        rows = [np.array(row.ids) for row in self._tokenizer.encode_batch(list(texts))]
        lengths = np.array([len(row) for row in rows])
        order = np.argsort(-lengths, kind="stable")
        parts = []
        for start, stop in budget_slices(lengths[order], CPU_BATCH_TOKENS):
            batch = [rows[place] for place in order[start:stop]]
            ids = np.zeros((len(batch), len(batch[0])), np.int64)
            mask = np.zeros_like(ids)
            for number, row in enumerate(batch):
                ids[number, : len(row)], mask[number, : len(row)] = row, 1
            inputs = {"input_ids": ids, "attention_mask": mask}
            parts.append(self._session.run(None, inputs)[0])
        return np.concatenate(parts)[np.argsort(order, kind="stable")]
