"""PromptBERT: loss, gradients and vectors against a sentence at a time in float64."""

from __future__ import annotations

import pytest
import torch

from cotbert_core.encoder.heads import TanhHead
from cotbert_core.training.batches import Batch
from tests.core import slow_reference
from tests.core.slow_reference import assert_same_gradients, exact, wide_head

TEMPERATURE = 0.5
SAME = {"templates.positive": "{p}/anchor"}


@pytest.fixture
def prefix(family):
    """Of the templates' names: those with this encoder's quotes."""
    return "promptroberta" if family == "cot-roberta" else "promptbert"


@pytest.fixture
def make(encoder_folder, tiny_settings, prefix):
    """A method whose head and templates are far from doing nothing."""

    def build(changes=None, **more):
        roles = {"templates.anchor": "{p}/anchor", "templates.positive": "{p}/positive"}
        flat = {"method.name": "promptbert", "templates.negative": None, **roles}
        flat |= {**(changes or {}), **more}
        flat = {k: v.format(p=prefix) if isinstance(v, str) else v for k, v in flat.items()}
        return wide_head(tiny_settings(encoder_folder, flat))

    return build


def slow_loss(model, head, templates, ids, mode):
    views = [slow_reference.vectors(model, head, bound, ids, mode) for bound in templates]
    return slow_reference.info_nce(TEMPERATURE, *views), views


@pytest.mark.parametrize("same", [{}, SAME], ids=["two templates", "one template"])
@pytest.mark.parametrize("denoise", [None, "none", "pad"])
def test_loss_and_gradients_equal_a_sentence_at_a_time(make, exact_model, ids, denoise, same):
    method = make(same, **({} if denoise is None else {"method.denoise": denoise}))
    assert isinstance(method.head, TanhHead)
    head = exact(method.head)
    output = method(Batch(ids))
    expected, views = slow_loss(exact_model, head, method.templates, ids, denoise or "position")
    assert output.loss.item() == pytest.approx(expected.item(), abs=1e-5)
    cosine = torch.cosine_similarity(*map(torch.stack, views)).mean().item()
    assert output.parts["positive_cosine"].item() == pytest.approx(cosine, abs=1e-5)
    assert (cosine > 1 - 1e-9) == bool(same), "one template without dropout: equal views"
    assert expected.item() > 0.1, "premise: sentences are not told apart from the start"
    output.loss.backward()
    expected.backward()
    assert_same_gradients(method.head, head)
    assert_same_gradients(method.encoder, exact_model)


def test_a_frozen_bias_has_the_value_and_no_gradient(make, exact_model, ids):
    method = make({"method.freeze_bias": True})
    output = method(Batch(ids))
    head = exact(method.head)
    views = []
    for bound in method.templates:
        filled = [slow_reference.mask_vector(exact_model, bound, s) for s in ids]
        biases = [slow_reference.bias(exact_model, bound, len(s), "position") for s in ids]
        pairs = zip(filled, biases, strict=True)
        views.append([slow_reference.tanh_head(head, h - b.detach()) for h, b in pairs])
    expected = slow_reference.info_nce(TEMPERATURE, *views)
    assert output.loss.item() == pytest.approx(expected.item(), abs=1e-5)
    output.loss.backward()
    expected.backward()
    assert_same_gradients(method.encoder, exact_model)


def test_with_one_template_the_views_differ_in_dropout(make, ids):
    method = make(SAME, dropout=0.1)
    calm = method.eval()(Batch(ids)).parts["positive_cosine"].item()
    noisy = method.train()(Batch(ids)).parts["positive_cosine"].item()
    assert calm == pytest.approx(1, abs=1e-6)
    assert noisy < 0.999


@pytest.mark.parametrize("denoise", ["position", "pad"])
@pytest.mark.parametrize(("same", "biases"), [({}, 2), (SAME, 1)])
def test_bias_rows_of_equal_templates_are_computed_once(make, ids, same, biases, denoise):
    method, seen = make(same, **{"method.denoise": denoise}), []
    method.encoder.register_forward_hook(lambda *a: seen.append(len(a[-1].last_hidden_state)))
    distinct = len(set(ids.lengths.tolist()))
    assert 1 < distinct < len(ids), "premise"
    method(Batch(ids))
    assert sum(seen) == 2 * len(ids) + biases * distinct


def test_companions_make_no_difference(make, ids):
    method = make()
    other = ids.take(range(len(ids) - 1, -1, -1))
    alone, both = method(Batch(ids)).loss.item(), method(Batch(ids, other, other)).loss.item()
    assert alone == both
    (note,) = method.notes(["augmented", "negative"])
    assert note == "method promptbert does not use the corpus's augmented and negative texts"
    assert method.notes([]) == []


def test_the_head_is_dropped_and_the_anchor_is_read(make, prefix):
    method = make()
    assert method.kept_head is None
    pooling = method.pooling
    assert (pooling.readout, pooling.denoise, pooling.head) == ("mask", "none", None)
    assert pooling.template == method.template("anchor")
    assert (pooling.full_stop, pooling.method) == (True, "promptbert")
    assert pooling.settings["templates.anchor"] == f"{prefix}/anchor"
