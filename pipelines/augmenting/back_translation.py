"""Back-translation with two Marian models: into a pivot language and back.

Rows are sorted by length and batched by number of tokens. A batch depends neither on the number of
workers nor on where an earlier run stopped. This matters because sampled translations, and with a
beam the last digits of the scores, depend on the other rows of the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from cotbert_core.encoder.length_batches import budget_slices
from pipelines.augmenting.ledger import Rewrite
from pipelines.augmenting.marian import MarianModel, MarianTokens, choose_prefix, find_marian
from pipelines.augmenting.options import BackTranslation
from pipelines.augmenting.translation_engines import choose_engine, converted, load_engine
from pipelines.runtime.progress import say

# On CPUs about 150 sentences: enough to keep 2 cores busy, and a kill loses seconds of work. On a
# GPU as many as fit.
CPU_BATCH_TOKENS, GPU_BATCH_TOKENS = 4096, 32768


@dataclass(frozen=True)
class Translation:
    """A worker's configuration: options with `auto` and None resolved, and both models.

    on_gpu: whether the engine computes on the workers' GPUs.
    """

    options: BackTranslation
    forward: MarianModel
    backward: MarianModel
    on_gpu: bool


def plan_translation(options: BackTranslation, gpu: bool) -> Translation:
    """Find both models and resolve engine and prefixes; UserError for anything invalid.

    gpu: whether the workers have GPUs; this process may have none.
    """
    engine, precision = choose_engine(options.engine, options.precision, gpu)
    forward = find_marian(options.forward, "forward")
    backward = find_marian(options.backward, "backward")
    on_gpu = gpu and engine == "transformers"
    tokens = GPU_BATCH_TOKENS if on_gpu else CPU_BATCH_TOKENS
    options = replace(
        options,
        engine=engine,
        precision=precision,
        forward_prefix=choose_prefix(forward, options.forward_prefix, "forward"),
        backward_prefix=choose_prefix(backward, options.backward_prefix, "backward"),
        batch_tokens=options.batch_tokens or tokens,
    )
    if engine == "ctranslate2":
        for model in (forward, backward):
            converted(model, precision)
    prefixes = [p for p in (options.forward_prefix, options.backward_prefix) if p]
    shown = f" (language tokens {', '.join(prefixes)})" if prefixes else ""
    say(f"translating with {engine} in {precision} on {'GPUs' if on_gpu else 'CPUs'}{shown}")
    return Translation(options, forward, backward, on_gpu)


class BackTranslator:
    """The rewriter (pipelines.augmenting.parts) of back-translation; it holds both models."""

    def __init__(self, plan: Translation, threads: int) -> None:
        options = plan.options
        self._options = options
        self._forward = load_engine(plan.forward, options, threads)
        self._backward = load_engine(plan.backward, options, threads)
        self._source = MarianTokens(plan.forward, options.forward_prefix or "")
        self._pivot = MarianTokens(plan.backward, options.backward_prefix or "")

    def rewrite(
        self, texts: Mapping[int, str], done: Mapping[int, Rewrite]
    ) -> Iterator[list[Rewrite]]:
        """Yield the rewrites of the rows that are not in `done`, batch by batch."""
        numbers = np.fromiter(texts, np.int64, len(texts))
        ids, cut = self._source.encode(list(texts.values()))
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        # Rows of equal length are ordered by id, so batches do not depend on the rows' order.
        order = np.lexsort((numbers, -lengths))
        for start, stop in budget_slices(lengths[order], self._options.batch_tokens):
            rows = order[start:stop]
            if all(int(numbers[row]) in done for row in rows):
                continue
            rewrites = self._round_trip([ids[row] for row in rows], int(numbers[rows[0]]))
            yield [
                Rewrite(int(numbers[row]), text, cut=bool(cut[row] or pivot_cut))
                for row, (text, pivot_cut) in zip(rows, rewrites, strict=True)
                if int(numbers[row]) not in done
            ]

    def _round_trip(self, ids: list[list[int]], first: int) -> list[tuple[str, bool]]:
        """Return (rewrite, whether its pivot was truncated) for each row of a batch.

        first: the id of the batch's first row, from which its random seeds are derived.
        """
        seeds = np.random.SeedSequence([self._options.seed, first]).generate_state(2, np.uint32)
        pivots = self._source.decode(self._forward.translate(ids, int(seeds[0])))
        pivot_ids, cut = self._pivot.encode(pivots)
        texts = self._pivot.decode(self._backward.translate(pivot_ids, int(seeds[1])))
        return list(zip(texts, cut, strict=True))
