"""The options of the commands about templates and the tokens that a mask predicts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from cotbert_core.choices import EmptyTemplate
from cotbert_core.errors import UserError
from pipelines.options import shared
from pipelines.options.checks import at_least, only_with
from pipelines.options.declare import INPUT, MODEL, OUTPUT, SEARCH, Option

# Two pairs that differ in a single meaning: a negation, and an instrument.
EXAMPLES = (
    "She feels lonely.",
    "She does not feel lonely.",
    "An old man plays the violin.",
    "An old man plays the drums.",
)
ENCODER = replace(shared.ENCODER, metavar="ENCODER", positional=True)


@dataclass(frozen=True)
class TokensOptions:
    """The sentences whose predicted tokens are shown."""

    encoder: Annotated[str, ENCODER]
    sentences: tuple[str, ...] = Option(
        "show the tokens for this sentence", "SENTENCE", positional=True, default="4 examples"
    ).field(EXAMPLES)
    template: str | None = replace(
        shared.TEMPLATE,
        help=f"show the tokens at the last mask of this template: {shared.TEMPLATE_NAMES}",
        default="the model's own, else PromptBERT's",
    ).field(None)
    top: int = Option(
        "show this many tokens for each sentence", "N", group=OUTPUT, unit="tokens"
    ).field(5)
    denoise: EmptyTemplate = shared.DENOISE.field("position")


@dataclass(frozen=True)
class TokenMapOptions:
    """The token table to draw, and the text in which tokens are counted."""

    encoder: Annotated[str, ENCODER]
    corpus: str | None = shared.TEXT_CORPUS.field(None)
    table: Literal["input", "head"] = Option(
        "draw the static token embeddings, or the output weights of the MLM head", group=MODEL
    ).field("input")
    text_column: str = shared.TEXT_COLUMN.field("text")
    encoding: str | None = shared.ENCODING.field(None)

    def __post_init__(self) -> None:
        only_with("corpus", self, "text_column", "encoding")


@dataclass(frozen=True)
class TemplateSearchOptions:
    """The templates to score: composed of relations and prefixes, or whole ones from a file."""

    encoder: Annotated[str, ENCODER]
    senteval: Path | None = shared.SENTEVAL.field(None)
    dev_pairs: Path | None = shared.DEV_PAIRS.field(None)
    relations: Path | None = Option(
        "try the texts in this file, one per line, between sentence and mask",
        "FILE",
        group=INPUT,
        default="the built-in list",
    ).field(None)
    prefixes: Path | None = Option(
        "try the texts in this file, one per line, before the sentence; [X] marks the sentence "
        "if text or a quote follows it",
        "FILE",
        group=INPUT,
        default="the built-in list",
    ).field(None)
    templates: Path | None = Option(
        "score only the whole templates in this file, one per line",
        "FILE",
        group=INPUT,
        default="compose templates of relations and prefixes",
    ).field(None)
    rounds: int = Option(
        "search this many rounds, each over the relations and then the prefixes",
        "N",
        group=SEARCH,
        unit="rounds",
    ).field(1)
    precision: shared.EncoderPrecision = "auto"

    def __post_init__(self) -> None:
        at_least(self, 1, "rounds")
        if self.templates and (self.relations or self.prefixes or self.rounds > 1):
            raise UserError(
                f"templates is {str(self.templates)!r}, and whole templates cannot be combined "
                "with relations, prefixes or rounds: give either templates or the others"
            )


@dataclass(frozen=True)
class GenerateOptions:
    """The definitions from which templates are generated, and how many."""

    model: Annotated[
        str,
        Option(
            "generate with this T5 model: a folder or a hub name",
            "T5_MODEL",
            positional=True,
            path="name",
        ),
    ]
    definitions: Annotated[
        Path,
        Option(
            "read one definition per line, as `word: definition` or separated by a tab",
            "FILE",
            group=INPUT,
        ),
    ]
    count: int = Option("write this many templates", "N", group=OUTPUT, unit="templates").field(500)
    beam: int = replace(shared.BEAM, group=SEARCH).field(100)
    max_tokens: int = Option(
        "generate at most this many tokens per template, not counting word and definition",
        "N",
        group=SEARCH,
        unit="tokens",
    ).field(20)
    examples: int | None = Option(
        "use a random sample of this many definitions",
        "N",
        group=INPUT,
        unit="definitions",
        default="all definitions",
    ).field(None)
    seed: int = shared.SEED.field(0)

    def __post_init__(self) -> None:
        at_least(self, 1, "count", "beam", "max_tokens", "examples")
        only_with("examples", self, "seed")
