"""Templates: the papers' texts under their names, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from cotbert_core.errors import UserError
from cotbert_core.templates.template_texts import TEMPLATES, Template, resolve_template
from cotbert_core.templates.wrapping import BoundTemplate

VARIANTS = ("", "only-prefix", "only-suffix", "irrelevant-prefix", "static-prefix", "reversed")
COT_NAMES = [
    "/".join(filter(None, (system, variant, role)))
    for system in ("cot-bert", "cot-roberta")
    for variant in VARIANTS
    for role in ("anchor", "positive", "negative")
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
    assert set(TEMPLATES) == {*COT_NAMES, *LITERAL, "cot-roberta/released/positive"}
    assert {name: TEMPLATES[name].text for name in LITERAL} == LITERAL


def test_the_hard_negative_denies_what_the_positive_says():
    for name in (name for name in COT_NAMES if name.endswith("negative")):
        positive = TEMPLATES[name.replace("negative", "positive")]
        denied = TEMPLATES[name].text
        assert denied.replace("does not mean", "means").replace("cannot", "can") == positive.text
        assert denied != positive.text


def test_parts_and_slot_make_the_text_again():
    for template in TEMPLATES.values():
        before, after = template.parts
        assert before == before.rstrip()
        blank = " " if "' [X]" in template.text else ""
        assert before + blank + "[X]" + after == template.text


def test_a_template_by_its_name_or_its_text():
    assert resolve_template("denosent") is TEMPLATES["denosent"]
    assert resolve_template("[X] means [MASK].") == TEMPLATES["denosent/paper"]
    assert [resolve_template(t).stages for t in ("[MASK] then [X]", "[X] [MASK][MASK] .")] == [1, 2]
    of_roberta = resolve_template("' [X] ' means <mask> .")
    assert (of_roberta.mask, of_roberta.stages) == ("<mask>", 1)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("means [MASK] .", r"\[X\] 0 times"),
        ("[X] and [X] mean [MASK] .", r"\[X\] 2 times"),
        ("[X means [MASK] .", r"\[X\] 0 times"),
        ("[X] [MASK] <mask>", r"spells the mask <mask> and \[MASK\]: write \[MASK\],"),
        ("[X] means [mask] .", r"spells the mask \[mask\]: write"),
        (
            "cot-brt/anchor",
            r"template 'cot-brt/anchor' \(did you mean cot-bert/anchor\?\): ",
        ),
    ],
)
def test_what_is_no_template_is_refused(text, fault):
    with pytest.raises(UserError, match=fault):
        resolve_template(text)


def test_the_last_of_two_masks_before_the_sentence_is_read(backbone):
    bound = BoundTemplate.bind(Template("[MASK] or [MASK] : [X]"), backbone.tokenizer.hf)
    masks = [place for place, token in enumerate(bound.before) if token == bound.mask_id]
    assert len(masks) == 2
    assert bound.readout(np.array([3])).tolist() == [masks[-1]]
