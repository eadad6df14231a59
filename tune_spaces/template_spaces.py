"""Search spaces with variants, in which several settings, mainly the templates, change together."""

from __future__ import annotations

from typing import Any

from tune_spaces.search_space import Space

Variant = dict[str, Any]

# CoT-BERT's Table 3: the last part of the templates' names, and the figures.
TABLE_3 = {
    "only-prefix": 78.91,
    "only-suffix": 78.83,
    "irrelevant-prefix": 78.44,
    "static-prefix": 78.91,
    "reversed": 78.46,
}
WHOLE = {"cot-bert": 79.40}
TABLE_4 = {"without-positive-negative": 79.11}
TABLE_6 = {"no-denoising": 78.69, "position-denoising": 78.89}


def templates() -> Space:
    """Return CoT-BERT's loss with every template of the papers and more stages (section 5.2)."""
    return Space(
        name="templates",
        purpose="CoT-BERT's loss with other templates: wording, number of stages, quotes.",
        recipe="cot-bert-base",
        variants={
            **_table_3(),
            **_more_stages(),
            "single-quotes": _named("cot-roberta"),
            "no-quotes": _worded(
                "means [MASK] , so it can be summarized as [MASK] .",
                "does not mean [MASK] , so it cannot be summarized as [MASK] .",
                quoted="[X]",
            ),
            **_promptbert(),
        },
        published={**WHOLE, **TABLE_3},
        source="CoT-BERT, Table 3, bert-base-uncased, average of 7 STS",
    )


def cot_bert_ablations() -> Space:
    """Return the paper's ablations of CoT-BERT, each of which removes one part."""
    return Space(
        name="cot-bert-ablations",
        purpose="CoT-BERT with one part removed: a stage, a term of the loss, or denoising.",
        recipe="cot-bert-base",
        variants={
            **_table_3(),
            "without-positive-negative": {"method.extended": False},
            "without-hard-negatives": _without_negative(_named("cot-bert")),
            "no-denoising": {"method.denoise": "none"},
            "position-denoising": {"method.denoise": "position"},
        },
        published={**WHOLE, **TABLE_3, **TABLE_4, **TABLE_6},
        source="CoT-BERT, Tables 3, 4 and 6, bert-base-uncased, average of 7 STS",
    )


def _table_3() -> dict[str, Variant]:
    return {"cot-bert": _named("cot-bert"), **{way: _named(f"cot-bert/{way}") for way in TABLE_3}}


def _more_stages() -> dict[str, Variant]:
    """Return templates with three and four masks, for which the paper has no figures."""
    return {
        "three-stages": _worded(
            "means [MASK] , it is about [MASK] , so it can be summarized as [MASK] .",
            "does not mean [MASK] , it is not about [MASK] , "
            "so it cannot be summarized as [MASK] .",
        ),
        "four-stages": _worded(
            "means [MASK] , it is about [MASK] , it implies [MASK] , "
            "so it can be summarized as [MASK] .",
            "does not mean [MASK] , it is not about [MASK] , it does not imply [MASK] , "
            "so it cannot be summarized as [MASK] .",
        ),
    }


def _promptbert() -> dict[str, Variant]:
    """Return PromptBERT's templates, also with a negated one as in CoT-BERT as hard negative."""
    two = _roles("promptbert/anchor", "promptbert/positive")
    denied = 'This sentence : "[X]" does not mean [MASK] .'
    return {
        "promptbert": _without_negative(two),
        "promptbert-denied": {**two, "templates.negative": denied},
        "promptbert-one-template": _without_negative(
            _roles("promptbert/manual", "promptbert/manual")
        ),
        "promptroberta": _without_negative(
            _roles("promptroberta/anchor", "promptroberta/positive")
        ),
    }


def _named(group: str) -> Variant:
    """Return a group of three templates that `cotbert templates` lists."""
    return _roles(f"{group}/anchor", f"{group}/positive", f"{group}/negative")


def _worded(affirmed: str, denied: str, quoted: str = '"[X]"') -> Variant:
    """Return CoT-BERT's three templates with other words after the sentence, or other quotes."""
    return _roles(
        f"The sentence of {quoted} {affirmed}",
        f"The sentence : {quoted} {affirmed}",
        f"The sentence : {quoted} {denied}",
    )


def _roles(anchor: str, positive: str, negative: str | None = None) -> Variant:
    return {
        "templates.anchor": anchor,
        "templates.positive": positive,
        "templates.negative": negative,
    }


def _without_negative(variant: Variant) -> Variant:
    """Return a variant without the hard negative and without the loss term that needs it."""
    return {**variant, "templates.negative": None, "method.extended": False}
