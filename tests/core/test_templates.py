"""Templates: the papers' texts under their names, and what is refused."""

from __future__ import annotations

import pytest

from cotbert_core.errors import UserError
from cotbert_core.templates.template_texts import TEMPLATES, Template, resolve_template

VARIANTS = ("", "only-prefix", "only-suffix", "irrelevant-prefix", "static-prefix", "reversed")
COT_NAMES = [
    "/".join(filter(None, (system, variant, role)))
    for system in ("cot-bert", "cot-roberta")
    for variant in VARIANTS
    for role in ("anchor", "positive", "negative")
]
OTHER_NAMES = [
    "promptbert/anchor",
    "promptbert/positive",
    "promptbert/manual",
    "promptroberta/anchor",
    "promptroberta/positive",
    "denosent",
    "denosent/paper",
    *(f"promptroberta/released/{role}" for role in ("anchor", "positive")),
    *(f"cot-roberta/released/{role}" for role in ("anchor", "positive", "negative")),
]
# As in the papers, `released` as in their code.
LITERAL = {
    "cot-bert/anchor": 'The sentence of "[X]" means [MASK] , so it can be summarized as [MASK] .',
    "cot-bert/positive": 'The sentence : "[X]" means [MASK] , so it can be summarized as [MASK] .',
    "cot-bert/negative": 'The sentence : "[X]" does not mean [MASK] , so it cannot be summarized as'
    " [MASK] .",
    "cot-roberta/anchor": "The sentence of ' [X] ' means [MASK] , so it can be summarized as"
    " [MASK] .",
    "cot-roberta/positive": "The sentence : ' [X] ' means [MASK] , so it can be summarized as"
    " [MASK] .",
    "cot-roberta/negative": "The sentence : ' [X] ' does not mean [MASK] , so it cannot be"
    " summarized as [MASK] .",
    "cot-bert/only-prefix/anchor": 'The sentence of "[X]" means [MASK].',
    "cot-bert/only-suffix/anchor": 'The sentence of "[X]" can be summarized as [MASK].',
    "cot-bert/irrelevant-prefix/anchor": "Penguin is a flightless bird, and the sentence of"
    ' "[X]" can be summarized as [MASK].',
    "cot-bert/static-prefix/anchor": 'The sentence of "[X]" means something, so it can be'
    " summarized as [MASK].",
    "cot-bert/reversed/anchor": 'The sentence of "[X]" can be summarized as [MASK], so it means'
    " [MASK].",
    "promptbert/anchor": 'This sentence of "[X]" means [MASK] .',
    "promptbert/positive": 'This sentence : "[X]" means [MASK] .',
    "promptbert/manual": 'This sentence : "[X]" means [MASK] .',
    "promptroberta/anchor": "This sentence : ' [X] ' means [MASK] .",
    "promptroberta/positive": "The sentence : ' [X] ' means [MASK] .",
    "promptroberta/released/anchor": "This sentence : ' [X] ' means[MASK].",
    "promptroberta/released/positive": "The sentence : ' [X] ' means[MASK].",
    "cot-roberta/released/anchor": "The sentence of ' [X] ' means [MASK] , so it can be summarized"
    " as [MASK] . ",
    "cot-roberta/released/negative": "The sentence : ' [X] ' does not mean [MASK] , so it cannot be"
    " summarized as [MASK] . ",
    "denosent": '"[X]" means [MASK].',
    "denosent/paper": "[X] means [MASK].",
}


def test_every_template_of_the_papers_is_there_and_no_other():
    assert set(TEMPLATES) == {*COT_NAMES, *OTHER_NAMES}


@pytest.mark.parametrize("name", LITERAL)
def test_texts_are_the_papers(name):
    assert TEMPLATES[name].text == LITERAL[name]


@pytest.mark.parametrize("name", [n for n in COT_NAMES if n.endswith("negative")])
def test_the_hard_negative_denies_what_the_positive_says(name):
    positive = TEMPLATES[name.replace("negative", "positive")]
    negative = TEMPLATES[name]
    affirmed = negative.text.replace("does not mean", "means").replace("cannot", "can")
    assert affirmed == positive.text
    assert negative.text != positive.text
    assert negative.stages == positive.stages


@pytest.mark.parametrize("name", TEMPLATES)
def test_parts_and_slot_make_the_text_again(name):
    template = TEMPLATES[name]
    before, after = template.parts
    assert before == before.rstrip()
    blank = " " if "' [X]" in template.text else ""
    assert before + blank + "[X]" + after == template.text


@pytest.mark.parametrize(
    ("text", "stages"),
    [("[X] [MASK]", 1), ("[MASK] then [X]", 1), ("[X] [MASK] [MASK] [MASK] .", 3)],
)
def test_stages_counts_masks(text, stages):
    assert Template(text).stages == stages


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("means [MASK] .", r"\[X\] 0 times"),
        ("[X] and [X] mean [MASK] .", r"\[X\] 2 times"),
        ("[X] means nothing .", r"no \[MASK\]"),
    ],
)
def test_a_template_without_one_slot_and_a_mask_is_refused(text, fault):
    with pytest.raises(UserError, match=fault):
        Template(text)


def test_resolve_by_name_and_by_text():
    assert resolve_template("denosent") is TEMPLATES["denosent"]
    assert resolve_template("[X] means [MASK].") == TEMPLATES["denosent/paper"]


def test_resolve_takes_the_mask_as_roberta_writes_it():
    template = resolve_template("' [X] ' means <mask> .")
    assert (template.mask, template.stages) == ("<mask>", 1)


def test_resolve_lists_the_known_names_for_an_unknown_one():
    with pytest.raises(UserError, match="unknown template 'cot-brt/anchor'") as caught:
        resolve_template("cot-brt/anchor")
    assert all(name in str(caught.value) for name in TEMPLATES)


def test_resolve_refuses_a_text_without_a_slot():
    with pytest.raises(UserError, match=r"has the slot \[X\] 0 times"):
        resolve_template("this means [MASK] .")
