"""How many tokens of a sentence a run reads, held against what its corpus was cut to.

A recipe's default gives way to the corpus's length; what a recipe or the user names is kept, and
the share of the sentences that it cuts is said.
"""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from cotbert_core.settings import TrainSettings, override
from pipelines.runtime.progress import say
from pipelines.storage.corpus import Corpus

# Of a corpus of more parts the share is that of so many, evenly apart: a part has at least 16,384
# rows, and the share of 131,072 rows is within 0.3 % of that of all.
SAMPLED_PARTS = 8


def follow_corpus(settings: TrainSettings, corpus: Corpus) -> TrainSettings:
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
    """Return what to say of sentences that the corpus holds whole and the run cuts."""
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
    """Return the share, 0 to 1, of sentences of more than `max_length` tokens, and whether it is
    that of a sample."""
    parts = len(corpus.part_rows())
    chosen = np.unique(np.linspace(0, parts - 1, min(parts, SAMPLED_PARTS)).round().astype(int))
    column = corpus.table(["input_ids"], chosen.tolist())["input_ids"]
    lengths = np.asarray(pc.list_value_length(column))
    return float((lengths > max_length).mean()) if len(lengths) else 0.0, len(chosen) < parts
