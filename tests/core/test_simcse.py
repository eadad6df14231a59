"""SimCSE: dropout positives, triples, both readouts, and the head where it stays."""

from __future__ import annotations

import shutil
from functools import partial

import numpy as np
import pytest
import torch
from made_encoders import with_encoders

from benchmarks.method_table import BARE
from cotbert_core import SentenceEncoder
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.files import write_json
from cotbert_core.methods import build_method
from cotbert_core.training.batches import Batch
from tests.core import slow_reference
from tests.core.slow_reference import assert_same_step, exact, tanh_vectors

TEMPERATURE = 0.5


@pytest.fixture
def make(make_bare):
    return partial(make_bare, "simcse")


@with_encoders(
    "readout labelled", ("bert", "cls", False), ("bert", "mean", True), ("roberta", "cls", True)
)
def test_loss_and_gradients_equal_a_sentence_at_a_time(
    make, exact_model, triples, ends, readout, labelled
):
    method = make(readout=readout, triples=labelled)
    head = exact(method.head)
    ids = triples.sentences
    texts = (ids, triples.augmented, triples.negative) if labelled else (ids, ids)
    views = [tanh_vectors(exact_model, head, ends, t, readout) for t in texts]
    expected = slow_reference.info_nce(TEMPERATURE, *views)
    assert expected.item() > 0.1, "premise"
    if labelled:
        without = slow_reference.info_nce(TEMPERATURE, *views[:2])
        assert abs(without - expected) > 1e-2, "premise: the hard negatives matter"
    output = method(triples)
    cosine = torch.cosine_similarity(*map(torch.stack, views[:2])).mean().item()
    assert output.parts["positive_cosine"].item() == pytest.approx(cosine, abs=1e-5)
    assert_same_step(output, expected, (method.encoder, exact_model), (method.head, head))


def test_dropout_makes_the_two_views(make, ids):
    method = make(dropout=0.1).train()
    first, second = (method(Batch(ids)) for _ in range(2))
    assert first.parts["positive_cosine"].item() < 0.999
    assert first.loss.item() != second.loss.item()
    assert method.eval()(Batch(ids)).parts["positive_cosine"].item() == pytest.approx(1, abs=1e-5)


def test_a_head_that_stays_is_read_everywhere(make, exact_model, sentences, ends, tmp_path):
    from sentence_transformers import SentenceTransformer

    method = make(keep_head=True)
    assert method.kept_head is method.head
    names = [n for n, _ in method.named_parameters() if "head" in n]
    assert len(names) == 2, "one head, not two"
    ids = method.backbone.tokenizer(sentences, 100)
    with torch.no_grad():
        slow = torch.stack(tanh_vectors(exact_model, exact(method.head), ends, ids, "cls")).numpy()
    encoder = method.sentence_encoder
    expected = encoder.encode(sentences, precision="fp32")
    np.testing.assert_allclose(expected, slow, atol=1e-5, rtol=0)
    encoder.save_pretrained(tmp_path)
    again = SentenceEncoder.from_pretrained(tmp_path)
    assert np.array_equal(again.encode(sentences, precision="fp32"), expected)
    theirs = SentenceTransformer(str(tmp_path), device="cpu").encode(sentences)
    np.testing.assert_allclose(theirs, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "method",
    [{"method.name": "simcse", **BARE}, {"method.name": "cot-bert"}],
    ids=lambda method: method["method.name"],
)
@pytest.mark.parametrize("limit", [9, None])
def test_the_model_keeps_the_limit_and_the_unit_length_of_the_encoder(
    encoder_folder, tiny_settings, tmp_path, limit, method
):
    folder = tmp_path / "modules"
    shutil.copytree(encoder_folder, folder)
    if limit:
        kinds = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
        modules = [
            {"type": f"sentence_transformers.models.{k}", "path": p} for k, p in kinds.items()
        ]
        write_json(folder / "modules.json", modules)
        write_json(folder / "sentence_bert_config.json", {"max_seq_length": limit + 2})
        write_json(folder / "1_Pooling/config.json", {"pooling_mode_mean_tokens": True})
    method = build_method(load_backbone(str(folder)), tiny_settings(str(folder), method))
    saved = SentenceEncoder(method.backbone, method.pooling)
    before = SentenceEncoder.from_pretrained(folder, readout="cls")
    assert (method.pooling.max_length, method.pooling.normalize) == (limit, limit is not None)
    assert saved.max_length == (limit or before.backbone.max_tokens - saved.bound.length)
    assert before.max_length == (limit or before.backbone.max_tokens - 2)
