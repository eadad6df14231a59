"""CoT-BERT with other templates: three stages (section 5.2), and the ablations of Table 3."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from cotbert_core import SentenceEncoder
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.errors import UserError
from cotbert_core.templates.template_texts import TEMPLATES
from cotbert_core.templates.tokenizing import end_with_full_stop
from cotbert_core.templates.wrapping import BoundTemplate
from cotbert_core.training.batches import Batch
from cotbert_core.training.step import make_optimizer, train_step
from tests.core import slow_reference
from tests.core.slow_reference import wide_head

ROLES = ("anchor", "positive", "negative")
THREE = {
    "templates.anchor": "The [MASK] of ' [X] ' means [MASK] , so it is [MASK] .",
    "templates.positive": "The [MASK] : ' [X] ' means [MASK] , so it is [MASK] .",
    "templates.negative": "The [MASK] : ' [X] ' does not mean [MASK] , so it is not [MASK] .",
}
# Table 3, and how many masks each has.
VARIANTS = {
    "": 2,
    "/only-prefix": 1,
    "/only-suffix": 1,
    "/irrelevant-prefix": 1,
    "/static-prefix": 1,
    "/reversed": 2,
}


@pytest.fixture
def make(encoder_folder, tiny_settings):
    def build(changes, **more):
        return wide_head(tiny_settings(encoder_folder, {**changes, **more}))

    return build


def slow_extended(views, temperature):
    """Equation 3, by loops."""

    def a(u, v):
        return torch.exp(u @ v / (u.norm() * v.norm()) / temperature)

    anchor, positive, negative = views
    total = 0.0
    for i in range(len(anchor)):
        below = sum(
            a(anchor[i], positive[j]) + a(anchor[i], negative[j]) + a(positive[i], negative[j])
            for j in range(len(anchor))
        )
        total = total - torch.log(a(anchor[i], positive[i]) / below)
    return total / len(anchor)


@pytest.mark.parametrize("changes", [{}, THREE], ids=["two stages", "three stages"])
def test_loss_and_gradients_equal_a_sentence_at_a_time(make, exact_model, ids, changes):
    method = make(changes)
    assert {bound.stages for bound in method.templates} == ({3} if changes else {2})
    head = slow_reference.exact(method.head)
    views = [
        slow_reference.vectors(exact_model, head, bound, ids, "pad") for bound in method.templates
    ]
    expected = slow_extended(views, 0.5)
    output = method(Batch(ids))
    assert output.loss.item() == pytest.approx(expected.item(), abs=1e-5)
    output.loss.backward()
    expected.backward()
    slow_reference.assert_same_gradients(method.encoder, exact_model)
    slow_reference.assert_same_gradients(method.head, head)


def test_three_stages_train_and_are_read_at_the_last_mask(
    make, exact_model, ids, sentences, tmp_path
):
    from sentence_transformers import SentenceTransformer

    method = make(THREE, **{"optimizer.learning_rate": 1e-3})
    optimizer = make_optimizer(method, method.settings.optimizer)
    before = method(Batch(ids)).loss.item()
    for step in range(1, 31):
        train_step(method, Batch(ids), optimizer, method.settings, step, 30)
    assert method(Batch(ids)).loss.item() < before - 0.1
    exact_model.load_state_dict(method.encoder.state_dict())
    texts = method.backbone.tokenizer([end_with_full_stop(s) for s in sentences], 100)
    with torch.no_grad():
        slow = slow_reference.vectors(exact_model, None, method.templates[0], texts, "none")
    encoder = SentenceEncoder(method.finished, method.pooling, method.kept_head)
    expected = encoder.encode(sentences, precision="fp32")
    np.testing.assert_allclose(expected, torch.stack(slow).numpy(), atol=1e-5, rtol=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        encoder.save_pretrained(tmp_path / "saved")
    again = SentenceEncoder.from_pretrained(tmp_path / "saved")
    assert again.pooling == encoder.pooling
    assert np.array_equal(again.encode(sentences, precision="fp32"), expected)
    theirs = SentenceTransformer(str(tmp_path / "saved"), device="cpu").encode(sentences)
    np.testing.assert_allclose(theirs, expected, atol=1e-5, rtol=0)


def test_stages_that_disagree_are_refused(make):
    with pytest.raises(UserError, match=r"templates\.anchor has 3, templates\.positive has 2"):
        make({"templates.anchor": THREE["templates.anchor"]})


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_of_table_3_binds_and_has_a_loss_of_its_own(make, ids, family, variant):
    changes = {f"templates.{role}": f"{family}{variant}/{role}" for role in ROLES}
    method = make(changes)
    assert [bound.stages for bound in method.templates] == [VARIANTS[variant]] * 3
    assert len(set(method.templates)) == 3
    loss = method(Batch(ids)).loss
    assert torch.isfinite(loss)
    loss.backward()
    if variant:
        assert abs(make({})(Batch(ids)).loss.item() - loss.item()) > 1e-4


def test_every_template_there_is_binds_in_both_encoders(encoder_folder):
    hf = load_backbone(encoder_folder).tokenizer.hf
    names = {f"{f}{v}/{r}" for f in ("cot-bert", "cot-roberta") for v in VARIANTS for r in ROLES}
    assert names <= set(TEMPLATES)
    for name, template in TEMPLATES.items():
        bound = BoundTemplate.bind(template, hf)
        assert (bound.before + bound.after).count(hf.mask_token_id) == template.stages, name
