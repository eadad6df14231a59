"""The options of cleaning, checked on the driver before any text is read."""

from __future__ import annotations

from dataclasses import dataclass

from cotbert_core.errors import UserError, unknown
from pipelines.cleaning.languages import check_languages
from pipelines.cleaning.splitting import check_splitter
from pipelines.cleaning.steps import STEPS


@dataclass(frozen=True, kw_only=True)
class CleanOptions:
    """The cleaning of texts, nothing by default. Raises UserError for an invalid value.

    steps: names in pipelines.cleaning.steps.STEPS; stored in that order, each once. split: the
    language of running text to be split into sentences. min_tokens, max_tokens: inclusive bounds on
    the tokens of a text. max_non_letters: the largest share, 0 to 1, of characters that are neither
    letters nor blanks. repeated: the largest share, 0 to 1, of one word among the words. language:
    codes, such as "en", of the languages to keep. language_probability: the least probability, 0 to
    1, of the detected language.
    """

    steps: tuple[str, ...] = ()
    split: str | None = None
    min_tokens: int | None = None
    max_tokens: int | None = None
    max_non_letters: float | None = None
    repeated: float | None = None
    language: tuple[str, ...] = ()
    language_probability: float = 0.5

    def __post_init__(self) -> None:
        for step in self.steps:
            if step not in STEPS:
                raise unknown("cleaning step", step, STEPS)
        object.__setattr__(self, "steps", tuple(s for s in STEPS if s in self.steps))
        object.__setattr__(self, "language", tuple(sorted(set(self.language))))
        for name in ("max_non_letters", "repeated", "language_probability"):
            self._check_share(name)
        self._check_tokens()
        if self.split is not None:
            check_splitter(self.split)
        if self.language:
            check_languages(self.language)

    def _check_share(self, name: str) -> None:
        share = getattr(self, name)
        if share is not None and not 0 <= share <= 1:
            raise UserError(f"{name} is {share}: give a share from 0 to 1")

    def _check_tokens(self) -> None:
        low, high = self.min_tokens, self.max_tokens
        for name, bound in (("min_tokens", low), ("max_tokens", high)):
            if bound is not None and bound < 1:
                raise UserError(f"{name} is {bound}: give at least 1 token")
        if low is not None and high is not None and low > high:
            raise UserError(
                f"min_tokens is {low} and max_tokens is {high}, which would drop every text: give "
                "a min_tokens of at most max_tokens"
            )
