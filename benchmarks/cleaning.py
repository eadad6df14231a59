"""Compare the cleaning of `cotbert prepare` with the bare fast tokenizer, which runs after it.

Both run on one core. A ratio of 4 means that cleaning adds a quarter to the tokenizer's time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from unittest.mock import patch

from benchmarks.harness import DisagreementError, Row, interleave
from cotbert_core.encoder.backbone import load_tokenizer
from cotbert_core.encoder.locations import MINILM
from cotbert_core.settings import TrainSettings
from pipelines.cleaning.cleaner import Cleaner
from pipelines.cleaning.options import CleanOptions
from pipelines.cleaning.steps import STEPS

SENTENCES = 10_000
SENTENCES_A_PARAGRAPH = 5
# One text in this many contains something for every step to change.
DIRTY = 10
LEAST_RATIO = 4.0
CHEAP = CleanOptions(steps=tuple(STEPS), max_non_letters=0.5, repeated=0.5)


def run(texts: Sequence[str], rounds: int) -> list[Row]:
    """Return the seconds for 10,000 sentences; a smaller text is repeated."""
    clean = (list(texts) * -(-SENTENCES // len(texts)))[:SENTENCES]
    dirty = [_soiled(t) if n % DIRTY == 0 else t for n, t in enumerate(clean)]
    starts = range(0, SENTENCES, SENTENCES_A_PARAGRAPH)
    paragraphs = [" ".join(clean[i : i + SENTENCES_A_PARAGRAPH]) for i in starts]
    language = CleanOptions(language=("en",))
    cases = [
        ("clean text", "steps and cheap filters", CHEAP, clean, LEAST_RATIO),
        ("1 text in 10 dirty", "steps and cheap filters", CHEAP, dirty, LEAST_RATIO),
        ("running text", "splitting", CleanOptions(split="en"), paragraphs, LEAST_RATIO),
        # The detector takes as long as the tokenizer, so this row has no target.
        ("clean text", "language filter", language, clean, None),
    ]
    return [_row(*case, rounds) for case in cases]


def _soiled(text: str) -> str:
    return f"<p>{text} R&amp;B so\u00adft cafe\u0301 , see https://example.org/a?b=c .</p>"


def _row(
    kind: str, what: str, options: CleanOptions, texts: list[str], target: float | None, rounds: int
) -> Row:
    tokenizer, max_length = load_tokenizer(MINILM), TrainSettings().max_length
    cleaner = Cleaner(options)
    # The tokenizer too must use one core instead of all.
    with patch.dict(os.environ, TOKENIZERS_PARALLELISM="false"):
        check = _check(cleaner, texts)
        tokenizer(texts[:100], max_length)
        seconds = interleave(
            {"ours": lambda _: cleaner([texts]), "peer": lambda _: tokenizer(texts, max_length)},
            rounds,
        )
    name = f"clean {SENTENCES} sentences, {kind}"
    return Row(name, what, "fast tokenizer", seconds["ours"], seconds["peer"], target, check)


def _check(cleaner: Cleaner, texts: list[str]) -> str:
    """Check that a text is cleaned equally alone and in a list; return the numbers of changes."""
    found = cleaner([texts])
    alone = [text for one in texts[:200] for text in cleaner([[one]]).texts]
    if found.texts[: len(alone)] != alone:
        raise DisagreementError("texts are cleaned differently alone and in a list")
    return f"{found.changed.total()} changed, {found.dropped.total()} dropped"
