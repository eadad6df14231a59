"""SimCSE: dropout positives, triples, both readouts, and the head where it stays."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch

from cotbert_core import SentenceEncoder
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.files import write_json
from cotbert_core.methods import build_method
from cotbert_core.training.batches import Batch
from tests.core import slow_reference
from tests.core.slow_reference import assert_same_gradients, exact, plain_vectors, wide_head

TEMPERATURE = 0.5
NONE = {f"templates.{role}": None for role in ("anchor", "positive", "negative")}
every_readout = pytest.mark.parametrize("readout", ["cls", "mean"])


@pytest.fixture
def make(encoder_folder, tiny_settings):
    def build(**changes):
        changes = {k.replace("__", "."): v for k, v in changes.items()}
        flat = {"method.name": "simcse", **NONE, **changes}
        return wide_head(tiny_settings(encoder_folder, flat))

    return build


@pytest.fixture
def triples(ids):
    return Batch(ids, ids.take([1, 2, 3, 4, 5, 0]), ids.take([3, 5, 0, 1, 2, 4]))


@every_readout
def test_loss_and_gradients_equal_a_sentence_at_a_time(make, exact_model, ids, readout, ends):
    method = make(method__readout=readout)
    head = exact(method.head)
    raw = plain_vectors(exact_model, ends, ids, readout)
    once = [slow_reference.tanh_head(head, v) for v in raw]
    expected = slow_reference.info_nce(TEMPERATURE, once, once)
    output = method(Batch(ids))
    assert output.loss.item() == pytest.approx(expected.item(), abs=1e-5)
    assert output.parts["positive_cosine"].item() == pytest.approx(1, abs=1e-5)
    assert expected.item() > 0.1, "premise"
    output.loss.backward()
    expected.backward()
    assert_same_gradients(method.encoder, exact_model)
    assert_same_gradients(method.head, head)


def test_dropout_makes_the_two_views(make, ids):
    method = make(dropout=0.1).train()
    first, second = (method(Batch(ids)) for _ in range(2))
    assert first.parts["positive_cosine"].item() < 0.999
    assert first.loss.item() != second.loss.item()
    assert method.eval()(Batch(ids)).parts["positive_cosine"].item() == pytest.approx(1, abs=1e-5)


@every_readout
def test_triples_equal_a_sentence_at_a_time(make, exact_model, triples, readout, ends):
    method = make(method__readout=readout, method__triples=True)
    head = exact(method.head)
    texts = (triples.sentences, triples.augmented, triples.negative)
    views = [
        [slow_reference.tanh_head(head, v) for v in plain_vectors(exact_model, ends, t, readout)]
        for t in texts
    ]
    expected = slow_reference.info_nce(TEMPERATURE, *views)
    output = method(triples)
    assert output.loss.item() == pytest.approx(expected.item(), abs=1e-5)
    assert abs(slow_reference.info_nce(TEMPERATURE, *views[:2]) - expected) > 1e-2
    cosine = torch.cosine_similarity(*map(torch.stack, views[:2])).mean().item()
    assert output.parts["positive_cosine"].item() == pytest.approx(cosine, abs=1e-5)
    output.loss.backward()
    expected.backward()
    assert_same_gradients(method.encoder, exact_model)


def test_without_triples_companions_make_no_difference(make, ids, triples):
    method = make()
    assert method(triples).loss.item() == method(Batch(ids)).loss.item()
    assert make(dropout=0.1).notes(["augmented"]) == [
        "method simcse does not use the corpus's augmented texts"
    ]
    assert make(method__triples=True).notes(triples.columns) == []


@every_readout
def test_the_readouts_and_their_reading(make, ids, readout):
    method = make(method__readout=readout)
    other = make(method__readout={"cls": "mean", "mean": "cls"}[readout])
    assert abs(method(Batch(ids)).loss.item() - other(Batch(ids)).loss.item()) > 1e-3
    pooling = method.pooling
    assert (pooling.readout, pooling.template, pooling.head) == (readout, None, None)
    assert (pooling.blank, pooling.full_stop, pooling.method) == (True, False, "simcse")
    assert method.kept_head is None


@every_readout
def test_training_and_inference_see_the_same_token_ids(make, ids, sentences, readout):
    """A corpus is tokenized once, with a byte-level tokenizer's blank."""
    method, seen = make(method__readout=readout), []
    encoder = SentenceEncoder(method.finished, method.pooling)
    method.encoder.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(kwargs["input_ids"]), with_kwargs=True
    )
    short = [s for s, n in zip(sentences, ids.lengths, strict=True) if n < 8]
    assert len(short) > 1, "premise"
    for sentence in short:
        method(Batch(method.backbone.tokenizer([sentence, "oil"], 8)))
        trained = seen.pop()
        encoder.encode([sentence])
        (used,) = seen.pop().tolist()
        assert used in [row[: len(used)] for row in trained.tolist()]
        assert not seen


def test_without_the_blank_roberta_sees_other_tokens(roberta_folder):
    tokenizer = load_backbone(roberta_folder).tokenizer
    with_blank, without = tokenizer(["A man"], 8), tokenizer(["A man"], 8, in_template=False)
    assert with_blank[0].tolist() != without[0].tolist(), "premise of the test above"


@every_readout
@pytest.mark.parametrize("keep", [True, False])
def test_a_saved_folder_is_read_the_same_everywhere(make, sentences, tmp_path, readout, keep):
    from sentence_transformers import SentenceTransformer

    method = make(method__readout=readout, method__keep_head=keep)
    encoder = SentenceEncoder(method.finished, method.pooling, method.kept_head)
    expected = encoder.encode(sentences, precision="fp32")
    encoder.save_pretrained(tmp_path / "saved")
    again = SentenceEncoder.from_pretrained(tmp_path / "saved")
    assert again.pooling == encoder.pooling
    assert (again.head is not None) == keep
    assert np.array_equal(again.encode(sentences, precision="fp32"), expected)
    theirs = SentenceTransformer(str(tmp_path / "saved"), device="cpu").encode(sentences)
    np.testing.assert_allclose(theirs, expected, atol=1e-5, rtol=0)
    raw = SentenceEncoder(method.finished, make(method__readout=readout).pooling)
    gap = np.abs(raw.encode(sentences, precision="fp32") - expected).max()
    assert (gap > 0.1) == keep


def test_the_head_that_stays_is_the_trained_one(make, exact_model, sentences, ends):
    method = make(method__keep_head=True)
    assert method.kept_head is method.head
    names = [n for n, _ in method.named_parameters() if "head" in n]
    assert len(names) == 2, "one head, not two"
    ids = method.backbone.tokenizer(sentences, 100)
    with torch.no_grad():
        raw = plain_vectors(exact_model, ends, ids, "cls")
        expected = [slow_reference.tanh_head(exact(method.head), v) for v in raw]
    vectors = method.sentence_encoder.encode(sentences, precision="fp32")
    np.testing.assert_allclose(vectors, torch.stack(expected).numpy(), atol=1e-5, rtol=0)
    assert method.sentence_encoder.encode(sentences, precision="bf16").dtype == np.float32


@pytest.mark.parametrize("limit", [9, None])
def test_the_model_reads_as_many_tokens_as_the_encoder_did(
    encoder_folder, tiny_settings, tmp_path, limit
):
    folder = tmp_path / "modules"
    shutil.copytree(encoder_folder, folder)
    if limit:
        kinds = {"Transformer": "", "Pooling": "1_Pooling"}
        modules = [
            {"type": f"sentence_transformers.models.{k}", "path": p} for k, p in kinds.items()
        ]
        write_json(folder / "modules.json", modules)
        write_json(folder / "sentence_bert_config.json", {"max_seq_length": limit + 2})
        write_json(folder / "1_Pooling/config.json", {"pooling_mode_mean_tokens": True})
    settings = tiny_settings(str(folder), {"method.name": "simcse", **NONE})
    method = build_method(load_backbone(str(folder)), settings)
    saved = SentenceEncoder(method.backbone, method.pooling)
    before = SentenceEncoder.from_pretrained(folder, readout="cls")
    assert method.pooling.max_length == limit
    assert saved.max_length == before.max_length == (limit or before.backbone.max_tokens - 2)
