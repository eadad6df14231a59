"""The candidates of a template search: their parts, and the default lists.

A candidate consists of prefix, relationship token, mask and tail (PromptBERT section 4.2): the
prefix is the text around the sentence, the relationship the text between sentence and mask.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from cotbert_core.errors import UserError
from cotbert_core.files import read_text
from cotbert_core.templates.template_texts import Template, resolve_template
from pipelines.runtime.progress import say

SLOT, MASK = Template.slot, Template.mask
STAGES = ("relation", "prefix")
# The first four are in PromptBERT Table 4; every search starts with the empty one.
RELATIONS: tuple[str, ...] = (
    *("", "is", "mean", "means", "means that", "is about", "says", "expresses", "describes"),
    *("represents", "refers to", "denotes", ", in short ,", "can be summarized as"),
)
# PromptBERT Table 4 has the second, fourth and fifth. Each is tried without and with quotes.
PREFIX_WORDS = (
    *("", "This", "This sentence", "This sentence of", "This sentence :", "The", "The sentence"),
    *("The sentence of", "The sentence :", "The text of", "The meaning of"),
)
DOUBLE_QUOTED, SINGLE_QUOTED = f'"{SLOT}"', f"' {SLOT} '"


@dataclass(frozen=True)
class Candidate:
    """A template by its parts. prefix: text that contains [X] once."""

    prefix: str = SLOT
    relation: str = ""
    tail: str = "."

    @property
    def text(self) -> str:
        """The template's text, such as `This sentence : "[X]" means [MASK] .`"""
        return " ".join(p for p in (self.prefix, self.relation, MASK, self.tail) if p)


@dataclass(frozen=True)
class Lists:
    """The relationships and the prefixes (each with [X]) to choose from."""

    relations: tuple[str, ...]
    prefixes: tuple[str, ...]

    def variants(self, base: Candidate, stage: str) -> list[Candidate]:
        """Return `base` with each choice of the part that the stage names."""
        if stage == "relation":
            return [replace(base, relation=relation) for relation in self.relations]
        return [replace(base, prefix=prefix) for prefix in self.prefixes]

    def longest(self, tokens: Callable[[str], int]) -> Candidate:
        """Return the candidate with the longest parts. tokens: the number of tokens of a text."""
        return Candidate(max(self.prefixes, key=tokens), max(self.relations, key=tokens))


def default_prefixes(quoted: str) -> tuple[str, ...]:
    """Return the default prefixes, each without quotes, then with them.

    quoted: DOUBLE_QUOTED, or the papers' SINGLE_QUOTED for byte-level tokenizers (RoBERTa).
    """
    return tuple(
        " ".join(p for p in (words, sentence) if p)
        for sentence in (SLOT, quoted)
        for words in PREFIX_WORDS
    )


def read_relations(path: Path) -> tuple[str, ...]:
    """Read relationships, one per line; UserError with the number of a line that contains [X]."""
    return _read_choices(path, "relations", _relation)


def read_prefixes(path: Path) -> tuple[str, ...]:
    """Read prefixes, one per line; [X] is added at the end of one without it."""
    return _read_choices(path, "prefixes", _prefix)


def read_templates(path: Path) -> tuple[str, ...]:
    """Read whole templates (names or texts), one per line; UserError names an invalid line."""
    return _read_choices(path, "templates", lambda line: resolve_template(line).require_mask().text)


def _prefix(line: str) -> str:
    if SLOT not in line and line[-1] not in "\"'":
        return f"{line} {SLOT}"
    if line.count(SLOT) != 1:
        raise UserError(
            f"prefix {line!r} has {SLOT} {line.count(SLOT)} times: give it once, between quotes "
            "if there are any"
        )
    return line


def _relation(line: str) -> str:
    if SLOT in line:
        raise UserError(
            f"relation {line!r} contains {SLOT}, but a relation follows the sentence: write {SLOT} "
            "in a prefix"
        )
    return line


def _read_choices(path: Path, kind: str, parse: Callable[[str], str]) -> tuple[str, ...]:
    """Return the distinct parsed lines of a file; report empty and repeated lines."""
    lines = read_text(path, f"{kind} file").splitlines()
    filled = [(number, " ".join(line.split())) for number, line in enumerate(lines, 1)]
    filled = [(number, line) for number, line in filled if line]
    if not filled:
        raise UserError(f"{kind} file {str(path)!r} has no line with text: write one per line")
    choices = tuple(dict.fromkeys(_parsed(path, *numbered, parse) for numbered in filled))
    empty, repeated = len(lines) - len(filled), len(filled) - len(choices)
    if empty or repeated:
        say(f"{path}: {empty} empty and {repeated} repeated lines are ignored")
    return choices


def _parsed(path: Path, number: int, line: str, parse: Callable[[str], str]) -> str:
    try:
        return parse(line)
    except UserError as error:
        raise UserError(f"{path}, line {number}: {error}") from None
