"""CoT-BERT: its templates, and the ablations of Table 3.

Its loss is compared with a sentence at a time in test_promptbert."""

from __future__ import annotations

import pytest
import torch

from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.templates.template_texts import TEMPLATES
from cotbert_core.templates.wrapping import BoundTemplate
from cotbert_core.training.batches import Batch
from tests.core.slow_reference import wide_head

ROLES = ("anchor", "positive", "negative")


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
    return lambda changes: wide_head(tiny_settings(encoder_folder, changes))


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
