"""Run an encoder for inference, in the workers of `embed` and the replicas of `serve`."""

from __future__ import annotations

import os
from importlib.util import find_spec

from cotbert_core.choices import Backend, Precision
from cotbert_core.encoder import threads as torch_threads
from cotbert_core.exporting.int8_graph import has_int8
from cotbert_core.exporting.openvino_model import choose_backend, with_openvino
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.training.precision import cast_weights
from pipelines.runtime.progress import say
from pipelines.runtime.worker_resources import has_gpus

# Number of shapes for which oneDNN keeps compiled code. The last batch of every block has a shape
# of its own, so memory grows until oneDNN's default limit of 1,024 is reached: by 104 MiB from
# 100,000 to 300,000 rows of a small encoder, and by 29 MiB with 256.
PRIMITIVES = "256"


def choose_library(backend: Backend, encoder: SentenceEncoder, precision: Precision) -> Backend:
    """Return the library that runs an encoder in the job's workers, torch or openvino.

    `auto` is torch if the workers have GPUs, even if the encoder's folder has an int8 graph and
    this process, such as the head of a cluster, has none. Raises UserError as choose_backend does.
    """
    chosen = choose_backend(backend, encoder, precision)
    if backend == "auto" and chosen != "torch" and has_gpus():
        return "torch"
    if backend == precision == "auto" and not find_spec("openvino"):
        model = encoder.backbone.name
        if has_int8(model) and not has_gpus():
            say(
                f"warning: {model} has an int8 graph, and openvino is not installed, so torch runs "
                "the encoder: pip install openvino"
            )
    return chosen


def set_threads(threads: int) -> None:
    """Let torch and the tokenizer of this process use this many threads each."""
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", PRIMITIVES)
    # By default each worker's tokenizer starts a thread for every core of the machine.
    os.environ.setdefault("RAYON_NUM_THREADS", str(threads))
    torch_threads.set_threads(threads)


def for_inference(
    encoder: SentenceEncoder, backend: Backend, precision: Precision
) -> SentenceEncoder:
    """Return the encoder as it runs by the library that choose_library returned."""
    return LIBRARIES[backend](encoder, precision)


def _with_torch(encoder: SentenceEncoder, precision: Precision) -> SentenceEncoder:
    cast_weights(encoder.backbone.model, precision)
    return encoder


LIBRARIES = {"torch": _with_torch, "openvino": with_openvino}
