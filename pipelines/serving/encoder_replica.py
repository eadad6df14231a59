"""The replica of `cotbert serve`: an actor of Ray Serve that holds the encoder."""

from __future__ import annotations

import asyncio

import numpy as np

from cotbert_core.sentence_encoder import SentenceEncoder
from pipelines.runtime import ray_private
from pipelines.runtime.inference import for_inference, set_threads
from pipelines.runtime.placement import use_own_device
from pipelines.serving.options import ServeOptions

# Forward passes per full batch: enough to sort its texts by length, without delaying the next batch
# for long.
FORWARD_PASSES = 8


class EncoderReplica:
    """Encode batches of texts, one at a time.

    options.model: folder or hub name. options.backend: the library that was chosen, not auto.
    """

    def __init__(self, options: ServeOptions, threads: int) -> None:
        ray_private.keep_replica_on_loopback()
        use_own_device()
        set_threads(threads)
        self._threads = threads
        encoder = SentenceEncoder.from_pretrained(options.model, options.template, options.readout)
        if options.backend == "torch":
            # Of 32 waiting texts, padding to the longest would be a third of the tokens.
            encoder.backbone = encoder.backbone.packed()
        self._encoder = for_inference(encoder, options.backend, options.precision)
        self._for_queries = self._encoder.for_queries or self._encoder
        self._precision = options.precision
        self._one_at_a_time = asyncio.Lock()
        self._encode(["A first batch takes longer than others."], queries=False)

    def batch_tokens(self) -> int:
        """Return the maximum number of tokens of a batch on this replica's device."""
        return FORWARD_PASSES * self._encoder.backbone.batch_tokens

    async def encode(self, texts: list[str], queries: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return the (N, D) vectors of N texts and their (N,) numbers of tokens.

        queries: put the model's prompt for queries before the texts.
        """
        async with self._one_at_a_time:
            return await asyncio.to_thread(self._encode, texts, queries)

    def _encode(self, texts: list[str], queries: bool) -> tuple[np.ndarray, np.ndarray]:
        encoder = self._for_queries if queries else self._encoder
        ids = encoder.tokenize(texts, encoder.max_length)
        tokens = ids.lengths + encoder.bound.length
        vectors = encoder.encode_tokens(ids, self._pass_tokens(tokens), precision=self._precision)
        return vectors, tokens

    def _pass_tokens(self, tokens: np.ndarray) -> int:
        """Return the maximum tokens of a forward pass. tokens: (N,) numbers of tokens of N texts.

        On a CPU each thread runs its own passes (cotbert_core.encoder.threads), so a small batch is
        divided among the threads.
        """
        backbone = self._encoder.backbone
        if backbone.device.type != "cpu":
            return backbone.batch_tokens
        return min(backbone.batch_tokens, max(1, -(-int(tokens.sum()) // self._threads)))
