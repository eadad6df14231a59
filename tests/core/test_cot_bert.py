"""CoT-BERT: its templates, the ablations of Table 3, and two processes.

Its loss is compared with a sentence at a time in test_promptbert."""

from __future__ import annotations

import gc
import warnings

import numpy as np
import pytest
import torch
import torch.distributed as dist
from worker_pair import run_pair

from cotbert_core import SentenceEncoder
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.templates.template_texts import TEMPLATES
from cotbert_core.templates.tokenizing import end_with_full_stop
from cotbert_core.templates.wrapping import BoundTemplate
from cotbert_core.training.batches import Batch
from cotbert_core.training.distributed import (
    gather_values,
    in_parallel,
    rank,
    world_size,
)
from cotbert_core.training.sampling import own_share, shard_by_length
from tests.core import slow_reference
from tests.core.method_table import THREE_STAGES
from tests.core.slow_reference import gradients, wide_head

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


def test_three_stages_are_read_at_the_last_mask(make, exact_model, sentences, tmp_path):
    from sentence_transformers import SentenceTransformer

    method = make(THREE_STAGES)
    texts = method.backbone.tokenizer([end_with_full_stop(s) for s in sentences], 100)
    with torch.no_grad():
        slow = slow_reference.vectors(exact_model, None, method.templates[0], texts, "none")
    expected = torch.stack(slow).numpy()
    encoder = method.sentence_encoder
    found = encoder.encode(sentences, precision="fp32")
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        encoder.save_pretrained(tmp_path)
    assert SentenceEncoder.from_pretrained(tmp_path).pooling == encoder.pooling
    theirs = SentenceTransformer(str(tmp_path), device="cpu").encode(sentences)
    np.testing.assert_allclose(theirs, expected, atol=1e-5, rtol=0)


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


def _one_of_two(own, settings, lists, documents, folder):
    """A process of the test below: its share of the batch under DDP."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=own, world_size=2)
    model = in_parallel(wide_head(settings))
    batch = Batch(Ragged.from_lists(lists), documents=documents)
    loss = model(own_share(batch, own, 2)).loss
    loss.backward()
    mean = sum(gather_values(loss.item())) / 2
    torch.save((mean, rank(), world_size(), gradients(model.module)), f"{folder}/{own}.pt")
    # Taken down together and before the interpreter: else gloo's threads now and then abort.
    dist.barrier()
    del model, loss
    gc.collect()
    dist.destroy_process_group()


@pytest.mark.real
@pytest.mark.parametrize(
    ("mini_batch_size", "documents"),
    [(None, None), (2, np.array([5, 2**62, 5, 7, 2**62, 8]))],
    ids=["whole", "mini-batches and documents"],
)
def test_two_processes_have_the_loss_and_gradient_of_one(
    roberta_folder, tiny_settings, sentences, tmp_path, mini_batch_size, documents
):
    changes = {"workers": 2, "batch_size": 6}
    one = wide_head(tiny_settings(roberta_folder, changes))
    settings = tiny_settings(roberta_folder, changes | {"mini_batch_size": mini_batch_size})
    lists = [row.tolist() for row in one.backbone.tokenizer(sentences, 8)]
    lengths = np.array([len(row) for row in lists])
    assert shard_by_length(lengths, 2).ravel().tolist() != list(range(6)), (
        "premise: no consecutive halves"
    )
    loss = one(Batch(Ragged.from_lists(lists), documents=documents)).loss
    loss.backward()
    shared = (settings, lists, documents, str(tmp_path))
    run_pair(_one_of_two, shared)
    expected = gradients(one)
    for own in (0, 1):
        mean, its_rank, size, found = torch.load(tmp_path / f"{own}.pt")
        assert (its_rank, size) == (own, 2)
        assert mean == pytest.approx(loss.item(), abs=1e-5)
        assert found.keys() == expected.keys()
        for name, gradient in expected.items():
            torch.testing.assert_close(found[name], gradient, atol=1e-5, rtol=0, msg=name)
    assert max(g.abs().max() for g in expected.values()) > 1e-2, "premise"
