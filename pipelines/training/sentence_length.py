"""Compare the max_length of a run with the max_length that its corpus was prepared with.

The default gives way to the corpus's length. A length that a recipe or the user names stays, and a
note gives the share of sentences that it cuts.
"""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from cotbert_core.settings import TrainSettings, override
from pipelines.runtime.progress import say
from pipelines.storage.corpus import Corpus

# A corpus of more parts is sampled: the share comes from this many parts, evenly apart. A part has
# at least 16,384 rows, and the share of 131,072 rows is within 0.3 % of that of all rows.
SAMPLED_PARTS = 8


def with_corpus_max_length(settings: TrainSettings, corpus: Corpus) -> TrainSettings:
    """Return the settings with the corpus's max_length, unless a recipe or the user names one."""
    length = int(corpus.manifest["max_length"])
    if "max_length" in settings.model_fields_set or settings.max_length == length:
        return settings
    say(
        f"note: max_length is {length}, as the corpus was prepared (the default is "
        f"{settings.max_length}; --set max_length=N names another)"
    )
    return override(settings, {"max_length": length})


def cut_notes(settings: TrainSettings, corpus: Corpus) -> list[str]:
    """Return a note on the share of sentences that the run cuts shorter than the corpus did."""
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
    """Return the share, 0 to 1, of sentences of more than `max_length` tokens, and whether only a
    sample of the corpus was counted."""
    parts = len(corpus.part_rows())
    chosen = np.unique(np.linspace(0, parts - 1, min(parts, SAMPLED_PARTS)).round().astype(int))
    column = corpus.table(["input_ids"], chosen.tolist())["input_ids"]
    lengths = np.asarray(pc.list_value_length(column))
    return float((lengths > max_length).mean()) if len(lengths) else 0.0, len(chosen) < parts
