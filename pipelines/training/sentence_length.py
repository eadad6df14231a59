"""Compare the max_length of a run with that of its corpus.

The corpus's max_length replaces the default. A length set by a recipe or the user stays, and a note
gives the share of sentences that it truncates.
"""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from cotbert_core.settings import TrainSettings, override
from pipelines.runtime.progress import say
from pipelines.storage.corpus import Corpus

# The share is computed from this many evenly spaced parts of a larger corpus. A part has at least
# 16,384 rows, and the share of 131,072 rows is within 0.3 % of that of all rows.
SAMPLED_PARTS = 8


def with_corpus_max_length(settings: TrainSettings, corpus: Corpus) -> TrainSettings:
    """Return the settings with the corpus's max_length, unless a recipe or the user sets one."""
    length = int(corpus.manifest["max_length"])
    if "max_length" in settings.model_fields_set or settings.max_length == length:
        return settings
    say(
        f"note: max_length is {length}, as the corpus was prepared (the default is "
        f"{settings.max_length}; --set max_length=N names another)"
    )
    return override(settings, {"max_length": length})


def cut_notes(settings: TrainSettings, corpus: Corpus) -> list[str]:
    """Return a note on the share of the corpus's sentences that the run truncates."""
    length = int(corpus.manifest["max_length"])
    if settings.max_length >= length:
        return []
    share, sampled = cut_share(corpus, settings.max_length)
    return [
        f"max_length is {settings.max_length} and the corpus was prepared with {length}: "
        f"{'about ' if sampled else ''}{100 * share:.1f} % of its sentences are cut "
        f"(--set max_length={length} keeps them as they are)"
    ]


def cut_share(corpus: Corpus, max_length: int) -> tuple[float, bool]:
    """Return the share, 0 to 1, of sentences with more than `max_length` tokens, and whether it was
    computed from a sample of the corpus."""
    parts = len(corpus.part_rows())
    chosen = np.unique(np.linspace(0, parts - 1, min(parts, SAMPLED_PARTS)).round().astype(int))
    column = corpus.table(["input_ids"], chosen.tolist())["input_ids"]
    lengths = np.asarray(pc.list_value_length(column))
    return float((lengths > max_length).mean()) if len(lengths) else 0.0, len(chosen) < parts
