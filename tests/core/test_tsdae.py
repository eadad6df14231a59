"""TSDAE: its deletion of tokens, and sentence-transformers' loss on this encoder's own weights."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("sentence_transformers", reason="method tsdae is sentence-transformers' loss")

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import DenoisingAutoEncoderLoss
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.pretrained import no_loading_report
from cotbert_core.errors import UserError
from cotbert_core.methods import METHODS, build_method
from cotbert_core.methods.tsdae import delete_tokens
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.settings import TrainSettings, override
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.training.batches import Batch
from cotbert_core.training.step import make_optimizer, train_step
from tests.core.slow_reference import gradients


@pytest.fixture
def make(encoder_folder):
    """In eval mode: the decoder keeps dropout rates of its own."""

    def build(**changes):
        bare = {f"templates.{role}": None for role in ("anchor", "positive", "negative")}
        small = {"method.name": "tsdae", "batch_size": 6, "max_length": 8, "precision": "fp32"}
        settings = override(TrainSettings(encoder=encoder_folder), bare | small | changes)
        torch.manual_seed(1)
        return build_method(load_backbone(encoder_folder, dropout=0.0), settings).eval()

    return build


@pytest.fixture
def batch(encoder_folder, sentences):
    return Batch(load_backbone(encoder_folder).tokenizer(sentences, 8))


def many(lengths=(40, 1, 0, 25, 7), times=200):
    """Lists of ids, each id of a list another: 0, 1, 2 and so on."""
    return Ragged.from_lists([list(range(n)) for n in lengths] * times)


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.6, 0.95])
def test_the_share_of_deleted_tokens_is_the_rate(rate):
    sentences = Ragged.from_lists([list(range(50))] * 400)
    torch.manual_seed(0)
    left = delete_tokens(sentences, rate)
    assert 1 - len(left.flat) / len(sentences.flat) == pytest.approx(rate, abs=0.015)
    if rate:
        lengths = left.lengths
        assert lengths.std() == pytest.approx(np.sqrt(50 * rate * (1 - rate)), rel=0.2)
        places = np.bincount(left.flat, minlength=50) / 400
        assert places.std() < 0.05, "no place is favoured"


@pytest.mark.parametrize("rate", [0.3, 0.6, 0.99])
def test_what_is_left_keeps_its_order_and_one_token_stays(rate):
    sentences = many()
    torch.manual_seed(0)
    left = delete_tokens(sentences, rate)
    assert len(left) == len(sentences)
    for before, after in zip(sentences, left, strict=True):
        assert (np.diff(after) > 0).all()
        assert set(after) <= set(before)
        assert (len(after) > 0) == (len(before) > 0), "an empty sentence stays empty"
    if rate == 0.99:
        alone = [int(a[0]) for b, a in zip(sentences, left, strict=True) if len(b) == 40]
        assert np.bincount(alone).max() < 20, "of 200, any of 40 stays"


def test_deletion_is_drawn_by_torchs_generator():
    sentences = many()
    draws = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        draws.append(delete_tokens(sentences, 0.6))
    np.testing.assert_array_equal(draws[0].flat, draws[1].flat)
    np.testing.assert_array_equal(draws[0].offsets, draws[1].offsets)
    assert len(draws[0].flat) != len(draws[2].flat)


def test_deleting_nothing_gives_the_sentences_themselves():
    sentences = many()
    np.testing.assert_array_equal(delete_tokens(sentences, 0.0).flat, sentences.flat)


def peer_objective(folder, readout, decoder):
    """sentence-transformers' loss built its own way, with this decoder's weights."""
    with no_loading_report():
        first = Transformer(folder)
        pooling = Pooling(32, pooling_mode=readout)
        objective = DenoisingAutoEncoderLoss(
            SentenceTransformer(modules=[first, pooling], device="cpu")
        )
    objective.decoder.load_state_dict(decoder.state_dict())
    return objective.eval()


def padded(tokenizer, texts):
    rows = [[tokenizer.cls_token_id, *t.tolist(), tokenizer.sep_token_id] for t in texts]
    return dict(tokenizer.pad({"input_ids": rows}, return_tensors="pt"))


@pytest.mark.parametrize("readout", ["cls", "mean"])
def test_loss_and_gradients_are_sentence_transformers_own(make, batch, encoder_folder, readout):
    method = make(**{"method.readout": readout})
    peer = peer_objective(encoder_folder, readout, method.objective.decoder)
    torch.manual_seed(3)
    damaged = delete_tokens(batch.sentences, 0.6)
    hf = method.backbone.tokenizer.hf
    expected = peer([padded(hf, damaged), padded(hf, batch.sentences)], None)
    torch.manual_seed(3)
    output = method(batch)
    assert output.loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert output.parts == {}
    assert method.work.tokens == len(damaged.flat) + 2 * len(damaged), "what is encoded"
    output.loss.backward()
    expected.backward()
    found, wanted = gradients(method.objective.decoder), gradients(peer.decoder)
    assert len(found) > 40
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient, atol=1e-6, rtol=1e-3, msg=name)
    whole = [padded(hf, batch.sentences)] * 2
    assert abs(peer(whole, None).item() - expected.item()) > 1e-4, "the deletion matters"


@pytest.mark.parametrize("readout", ["cls", "mean"])
def test_the_encoders_own_weights_are_trained(make, batch, readout):
    method = make(**{"method.readout": readout})
    assert METHODS["tsdae"] is type(method)
    assert method.objective.encoder[0].model is method.encoder
    tied = dict(method.objective.decoder.base_model.named_parameters())
    for name, weight in method.encoder.named_parameters():
        if not name.startswith("pooler."):
            assert weight is tied[name], name
    method(batch).loss.backward()
    without = {n for n, p in method.named_parameters() if p.grad is None}
    assert without == {"encoder.pooler.dense.weight", "encoder.pooler.dense.bias"}
    # By algebra: a key's bias shifts all scores of a softmax equally; and a memory of one vector
    # is weighed 1 whatever the cross-attention's queries and keys are.
    idle = {n for n, g in gradients(method).items() if g.abs().max() < 1e-7}
    assert idle
    crossing = ("query.weight", "query.bias", "key.weight")
    for name in idle:
        assert name.endswith("key.bias") or (
            "crossattention" in name and name.endswith(crossing)
        ), name


def test_steps_lower_the_loss_and_move_the_vectors(make, batch, sentences):
    changes = {"optimizer.learning_rate": 3e-3, "optimizer.schedule": "constant"}
    method = make(**changes)
    before = method.sentence_encoder.encode(sentences, precision="fp32")
    optimizer = make_optimizer(method, method.settings.optimizer)
    torch.manual_seed(0)
    losses = [
        train_step(method.train(), batch, optimizer, method.settings, step, 15).loss
        for step in range(1, 16)
    ]
    assert np.mean(losses[-3:]) < 0.8 * losses[0], losses
    after = method.sentence_encoder.encode(sentences, precision="fp32")
    assert np.abs(after - before).max() > 0.1


@pytest.mark.parametrize("readout", ["cls", "mean"])
def test_a_saved_folder_is_the_encoder_read_without_a_template(make, sentences, readout, tmp_path):
    method = make(**{"method.readout": readout})
    pooling = method.pooling
    assert (pooling.readout, pooling.template, pooling.blank) == (readout, None, True)
    encoder = SentenceEncoder(method.finished, pooling, method.kept_head)
    vectors = encoder.encode(sentences, precision="fp32")
    encoder.save_pretrained(tmp_path / "model")
    kept = set(load_file(tmp_path / "model" / "model.safetensors"))
    assert kept == set(dict(method.encoder.named_parameters()))
    opened = SentenceEncoder.from_pretrained(tmp_path / "model")
    assert opened.pooling == pooling
    np.testing.assert_array_equal(opened.encode(sentences, precision="fp32"), vectors)


def test_without_the_package_the_error_says_how_to_get_it(make, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(
        UserError, match=r"tsdae needs .* not installed: pip install 'cotbert\[tsdae\]'"
    ):
        make()
