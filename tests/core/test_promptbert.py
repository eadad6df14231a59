"""Methods with templates: loss and gradients against a sentence at a time in float64."""

from __future__ import annotations

import pytest
import torch
from made_encoders import with_encoders

from benchmarks.method_table import ALONE
from tests.core import slow_reference
from tests.core.slow_reference import assert_same_gradients, exact, wide_head

TEMPERATURE = 0.5
# Templates of CoT-BERT with three masks each.
THREE_STAGES = {
    "templates.anchor": "The [MASK] of ' [X] ' means [MASK] , so it is [MASK] .",
    "templates.positive": "The [MASK] : ' [X] ' means [MASK] , so it is [MASK] .",
    "templates.negative": "The [MASK] : ' [X] ' does not mean [MASK] , so it is not [MASK] .",
}
PLAIN = {"method.extended": False}
SAME = {"templates.positive": "{prefix}/anchor"}
CASES = [
    ("cot-bert", {}),
    ("cot-bert", THREE_STAGES),
    ("cot-bert", PLAIN),
    ("cot-bert", {**PLAIN, "templates.negative": None}),
    ("cot-bert", {"method.denoise": "position"}),
    ("promptbert", {}),
    ("promptbert", SAME),
    ("promptbert", {**SAME, "method.denoise": "none"}),
    ("promptbert", {"method.denoise": "pad"}),
    ("promptbert", {"method.freeze_bias": True}),
    ("promptbert-supervised", {}),
    ("promptbert-supervised", {"method.denoise": "none"}),
    ("promptbert-supervised", {"method.head": "tanh"}),
    ("promptbert-supervised", {"method.head": "tanh", "method.denoise": "pad"}),
]


@pytest.fixture
def make(encoder_folder, tiny_settings, prompts):
    """A method whose head is far from doing nothing."""

    def build(name, changes):
        flat = {"method.name": name, **changes}
        if name != "cot-bert":
            roles = ("anchor", "positive") if name == "promptbert" else ("anchor",)
            flat = ALONE | {f"templates.{role}": f"{prompts}/{role}" for role in roles} | flat
        flat = {k: v.format(prefix=prompts) if isinstance(v, str) else v for k, v in flat.items()}
        return wide_head(tiny_settings(encoder_folder, flat))

    return build


@with_encoders(
    "name changes",
    *(("bert", *case) for case in CASES),
    # The templates of RoBERTa, and the positions of its biases, are others.
    *(("roberta", n, c) for n, c in CASES if not c or c.get("method.denoise", "none") != "none"),
)
def test_loss_and_gradients_equal_a_sentence_at_a_time(make, exact_model, triples, name, changes):
    method = make(name, changes)
    settings, trained = method.settings.method, method.kept_head or method.head
    head = exact(trained)
    ids = triples.sentences
    if name == "promptbert-supervised":
        rows = [(method.anchor, t) for t in (ids, triples.augmented, triples.negative)]
    else:
        rows = [(bound, ids) for bound in method.templates]
    views = [
        slow_reference.vectors(
            exact_model, head, bound, texts, settings.denoise, frozen=settings.freeze_bias
        )
        for bound, texts in rows
    ]
    extended = getattr(settings, "extended", False)
    expected = slow_reference.info_nce(TEMPERATURE, *views, extended=extended)
    output = method(triples)
    assert output.loss.item() == pytest.approx(expected.item(), abs=1e-5)
    assert expected.item() > 0.1, "premise: sentences are not told apart from the start"
    if len(views) > 2:
        without = slow_reference.info_nce(TEMPERATURE, *views[:2]).item()
        assert expected.item() > without + 1e-2, "premise: the hard negatives matter"
    anchors, *others = map(torch.stack, views)
    cosine, *negative = [torch.cosine_similarity(anchors, v).mean().item() for v in others]
    assert output.parts["positive_cosine"].item() == pytest.approx(cosine, abs=1e-5)
    if name == "promptbert-supervised":
        assert output.parts["negative_cosine"].item() == pytest.approx(negative[0], abs=1e-5)
    assert (cosine > 1 - 1e-9) == (SAME.items() <= changes.items()), "without dropout"
    output.loss.backward()
    expected.backward()
    assert_same_gradients(method.encoder, exact_model)
    if settings.denoise != "none" and hasattr(trained, "norm"):
        # Added and subtracted again: rounding in one, nothing in the other.
        assert trained.norm.bias.grad.abs().max() < 1e-6
        trained.norm.bias.grad = head.norm.bias.grad = None
    assert_same_gradients(trained, head)
