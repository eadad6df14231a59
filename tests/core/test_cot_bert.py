"""CoT-BERT's objective: one pass over all rows against a sentence at a time; two processes."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch
import torch.distributed as dist

from cotbert_core.encoder.heads import apply_head
from cotbert_core.losses import extended_info_nce, info_nce
from cotbert_core.methods import contrastive
from cotbert_core.methods.contrastive import View
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.templates.template_texts import resolve_template
from cotbert_core.training.batches import Batch
from cotbert_core.training.distributed import (
    gather_values,
    gather_with_gradient,
    in_parallel,
    rank,
    world_size,
)
from cotbert_core.training.sampling import own_share, shard_by_length
from tests.core import slow_reference
from tests.core.slow_reference import gradients, wide_head

ROLES = ("anchor", "positive", "negative")


@pytest.fixture
def make_method(encoder_folder, tiny_settings):
    def make(changes=None, **more):
        return wide_head(tiny_settings(encoder_folder, {**(changes or {}), **more}))

    return make


def denoised(method, ids):
    """(N, D) for each template, before the head."""
    views = [View(template, ids) for template in method.templates]
    return [apply_head(vectors, bias) for vectors, bias in method.encode(views)]


@pytest.mark.parametrize("denoise", ["none", "position", "pad"])
@pytest.mark.parametrize("freeze", [False, True])
def test_denoised_vectors_equal_one_sentence_at_a_time(
    make_method, exact_model, ids, denoise, freeze
):
    method = make_method({"method.denoise": denoise, "method.freeze_bias": freeze})
    for template, vectors in zip(method.templates, denoised(method, ids), strict=True):
        with torch.no_grad():
            slow = torch.stack(slow_reference.vectors(exact_model, None, template, ids, denoise))
        torch.testing.assert_close(vectors.double(), slow, atol=1e-5, rtol=0)
        assert vectors.std(dim=0).mean() > 1e-2, "premise: sentences differ"


def test_small_batches_of_tokens_do_not_change_the_vectors(make_method, ids, monkeypatch):
    method = make_method()
    whole = denoised(method, ids)
    monkeypatch.setattr(contrastive, "CPU_TRAIN_TOKENS", 64)
    for one, other in zip(denoised(method, ids), whole, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)


def test_templates_are_bound_in_the_order_of_their_roles(make_method, family):
    method = make_method()
    hf = method.backbone.tokenizer.hf
    for bound, role in zip(method.templates, ROLES, strict=True):
        text = resolve_template(f"{family}/{role}").text.replace("[MASK]", hf.mask_token)
        expected = hf(text.replace("[X]", "man"))["input_ids"]
        blank = " " if family == "cot-roberta" else ""
        word = hf.encode(blank + "man", add_special_tokens=False)
        assert [*bound.before, *word, *bound.after] == expected


@pytest.mark.parametrize(
    ("changes", "loss"),
    [
        ({}, extended_info_nce),
        ({"method.extended": False}, info_nce),
        ({"method.extended": False, "templates.negative": None}, info_nce),
    ],
)
def test_forward_is_the_loss_of_the_head_of_the_denoised_vectors(make_method, ids, changes, loss):
    method = make_method(changes)
    weight, bias = method.head.dense.weight, method.head.dense.bias
    vectors = [torch.tanh(v @ weight.T + bias) for v in denoised(method, ids)]
    assert len(vectors) == (2 if "templates.negative" in changes else 3)
    output = method(Batch(ids))
    expected = loss(*vectors, temperature=method.settings.method.temperature)
    assert output.loss.item() == pytest.approx(expected.item(), abs=1e-5)
    cosine = torch.nn.functional.cosine_similarity(vectors[0], vectors[1], dim=-1).mean()
    assert output.parts["positive_cosine"].item() == pytest.approx(cosine.item(), abs=1e-5)
    assert not output.parts["positive_cosine"].requires_grad


def test_a_frozen_bias_is_subtracted_without_gradient(make_method, ids):
    direction = torch.randn(3 * len(ids), 32, generator=torch.Generator().manual_seed(0))

    def slope(changes):
        method = make_method(changes)
        (torch.cat(denoised(method, ids)) * direction).sum().backward()
        return gradients(method)["encoder.embeddings.word_embeddings.weight"]

    without, live = slope({"method.denoise": "none"}), slope({"method.freeze_bias": False})
    torch.testing.assert_close(slope({"method.freeze_bias": True}), without, atol=1e-4, rtol=1e-4)
    assert (live - without).abs().max() > 0.1


def test_every_weight_but_the_pooler_gets_gradient(make_method, ids):
    method = make_method()
    method(Batch(ids)).loss.backward()
    without = {n for n, p in method.named_parameters() if p.grad is None}
    assert without == {"encoder.pooler.dense.weight", "encoder.pooler.dense.bias"}
    # Without gradient by algebra: a key's bias shifts all scores of a softmax equally, and the last
    # layer's bias is in the mask vector and in the template's, which is subtracted from it.
    idle = ("key.bias", "layer.1.output.LayerNorm.bias")
    sizes = {n: g.abs().max().item() for n, g in gradients(method).items() if not n.endswith(idle)}
    assert len(sizes) > 30
    assert not {n: size for n, size in sizes.items() if size < 1e-5}


@pytest.mark.parametrize("negative", [True, False])
def test_ranks_of_two_together_have_the_loss_of_one(make_method, ids, monkeypatch, negative):
    method = make_method({} if negative else {"templates.negative": None, "method.extended": False})
    whole = method(Batch(ids)).loss.item()
    halves = [ids.take(range(3)), ids.take(range(3, 6))]
    columns = [[method.head(v) for v in denoised(method, half)][1:] for half in halves]
    losses = []
    for own in (0, 1):
        gathered = iter([torch.cat(both) for both in zip(*columns, strict=True)])
        monkeypatch.setattr(contrastive, "gather_with_gradient", lambda _, g=gathered: next(g))
        monkeypatch.setattr(contrastive, "rank", lambda own=own: own)
        losses.append(method(Batch(halves[own])).loss.item())
    assert sum(losses) / 2 == pytest.approx(whole, abs=1e-5)
    monkeypatch.setattr(contrastive, "gather_with_gradient", lambda vectors: vectors)
    monkeypatch.setattr(contrastive, "rank", lambda: 0)
    alone = [method(Batch(half)).loss.item() for half in halves]
    assert abs(sum(alone) / 2 - whole) > 1e-2, "premise: the other rank's columns matter"


def test_one_process_gathers_nothing():
    vectors = torch.ones(2, 3)
    assert (world_size(), rank(), gather_values(0.5)) == (1, 0, [0.5])
    assert gather_with_gradient(vectors) is vectors


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
    torch.multiprocessing.start_processes(_one_of_two, shared, nprocs=2, start_method="fork")
    expected = gradients(one)
    for own in (0, 1):
        mean, its_rank, size, found = torch.load(tmp_path / f"{own}.pt")
        assert (its_rank, size) == (own, 2)
        assert mean == pytest.approx(loss.item(), abs=1e-5)
        assert found.keys() == expected.keys()
        for name, gradient in expected.items():
            torch.testing.assert_close(found[name], gradient, atol=1e-5, rtol=0, msg=name)
    assert max(g.abs().max() for g in expected.values()) > 1e-2, "premise"
