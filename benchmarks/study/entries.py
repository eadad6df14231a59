"""The entries of the study: variants of recipes in groups by corpus, and untrained readouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# The corpora: single sentences, documents, and triples of sentence, entailment and contradiction.
SENTENCES, DOCUMENTS, TRIPLES = "sentences", "documents", "triples"


@dataclass(frozen=True)
class Entry:
    """A recipe with changed settings. name: name of its row (default: the recipe's)."""

    recipe: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""

    @property
    def label(self) -> str:
        return self.name or self.recipe

    def text(self) -> str:
        """Return the entry as an argument of `cotbert compare`."""
        given = {"name": self.label} | dict(self.changes)
        return ",".join([self.recipe, *(f"{key}={written(v)}" for key, v in given.items())])


@dataclass(frozen=True)
class Group:
    """Entries that are compared on one corpus."""

    name: str
    entries: tuple[Entry, ...]
    corpus: str = SENTENCES


def written(value: Any) -> str:
    """Return a setting's value as YAML."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _templates(group: str) -> dict[str, str]:
    return {f"templates.{role}": f"{group}/{role}" for role in ("anchor", "positive", "negative")}


def _stages(*clauses: str) -> dict[str, str]:
    """Return CoT-BERT's templates with these clauses after the sentence, one of them negated."""
    denied = {"means": "does not mean", "is": "is not", "can": "cannot"}
    no = []
    for clause in clauses:
        verb = next(word for word in clause.split() if word in denied)
        no.append(clause.replace(verb, denied[verb], 1))
    said, unsaid = (" , ".join(some) + " ." for some in (clauses, no))
    return {
        "templates.anchor": f'The sentence of "[X]" {said}',
        "templates.positive": f'The sentence : "[X]" {said}',
        "templates.negative": f'The sentence : "[X]" {unsaid}',
    }


COT, PROMPT, DENO = "cot-bert-base", "promptbert-base", "denosent-base"
# RankCSE and DCLR learn from encoders of earlier runs; `runs` sets them.
TAUGHT = ("rankcse-base", "dclr-base")
_RECIPES = (
    *("simcse-base", COT, "conpvp-base", PROMPT, "optiprompt-base", DENO, "denosent-paper"),
    *("consert-base", "esimcse-base", "dclr-base", "arccse-base", "diffcse-base"),
    *("pcl-base", "promcse-base", "sncse-base", "rankcse-base", "tsdae-base"),
)
METHODS = Group("methods", tuple(map(Entry, _RECIPES)))
_WAYS = ("only-prefix", "only-suffix", "irrelevant-prefix", "static-prefix", "reversed")
_THREE = _stages("means [MASK]", "it is about [MASK]", "so it can be summarized as [MASK]")
COT_BERT = Group(
    "cot-bert",
    (
        *(Entry(COT, _templates(f"cot-bert/{way}"), way) for way in _WAYS),
        Entry(COT, _THREE, "three-stages"),
        Entry(COT, {"method.denoise": "none"}, "no-denoising"),
        Entry(COT, {"method.denoise": "position"}, "position-denoising"),
    ),
)
_ONE_TEMPLATE = {"templates.positive": "promptbert/anchor", "method.denoise": "none"}
PROMPTBERT = Group(
    "promptbert",
    (
        Entry(PROMPT, _ONE_TEMPLATE, "one-template"),
        Entry(PROMPT, {"method.denoise": "none"}, "two-templates"),
    ),
)
# The rest of a document replaces back-translations.
_REST = {"method.positive": "rest"}
_DROPOUT = {"method.positive": "dropout"}
_CONTRASTIVE = {"method.objective": "contrastive"}
_GENERATIVE = {"method.objective": "generative"}
DENOSENT = Group(
    "denosent",
    (
        Entry(DENO, _REST, "rest"),
        Entry(DENO, _REST | _CONTRASTIVE, "rest-contrastive"),
        Entry(DENO, _REST | _GENERATIVE, "rest-generative"),
        Entry(DENO, _DROPOUT, "dropout"),
        Entry(DENO, _DROPOUT | _CONTRASTIVE, "dropout-contrastive"),
        Entry(DENO, _DROPOUT | _GENERATIVE, "dropout-generative"),
        Entry(DENO, _REST | {"method.readout": "cls", "templates.anchor": None}, "rest-cls"),
    ),
    DOCUMENTS,
)
_DROPOUTS = (0.8, 0.85, 0.875, 0.9)
NOISE = Group(
    "denosent-noise",
    (
        *(Entry(DENO, _REST | {"method.heads": n}, f"heads-{n}") for n in (2, 4, 8)),
        *(Entry(DENO, _REST | {"method.dropout": p}, f"dropout-{p}") for p in _DROPOUTS),
        *(Entry(DENO, _REST | {"method.layers": n}, f"layers-{n}") for n in (12, 14)),
    ),
    DOCUMENTS,
)
_SUPERVISED = (Entry("simcse-supervised"), Entry("promptbert-supervised"))
SUPERVISED = Group("supervised", _SUPERVISED, TRIPLES)
GROUPS = (METHODS, COT_BERT, PROMPTBERT, DENOSENT, SUPERVISED, NOISE)

# The untrained encoder in the tables of other scores.
UNTRAINED, UNTRAINED_READOUT = "untrained", "last"

# Options of `cotbert evaluate` by the name of the readout. SAMPLE stands for a text of sentences.
SAMPLE = "SAMPLE"
_MANUAL = ("--template", "promptbert/manual")
_TOKENS = ("--readout", "top-tokens", *_MANUAL)
_STATIC = ("--readout", "static")
_BIASES = ("frequent", "subwords", "case", "punctuation")
READOUTS: dict[str, tuple[str, ...]] = {
    "static": _STATIC,
    **{f"static-{n}": (*_STATIC, "--remove", ",".join(_BIASES[:n])) for n in range(1, 5)},
    "last": ("--readout", "last"),
    "first-last": ("--readout", "first-last"),
    "cls": ("--readout", "cls"),
    "whitening": ("--readout", "first-last", "--whiten", SAMPLE),
    "flow": ("--readout", "first-last", "--flow", SAMPLE),
    "ranks": ("--readout", "last", "--rank", SAMPLE),
    "manual": _MANUAL,
    "manual-denoised": (*_MANUAL, "--denoise", "position"),
    "top-tokens": _TOKENS,
    "top-tokens-denoised": (*_TOKENS, "--denoise", "position"),
    "cot-bert-mask": ("--template", "cot-bert/anchor"),
}
