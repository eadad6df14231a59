"""TSDAE: its deletion of tokens, and sentence-transformers' loss on this encoder's own weights."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

pytest.importorskip("sentence_transformers", reason="method tsdae is sentence-transformers' loss")

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import DenoisingAutoEncoderLoss
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from benchmarks.method_table import BARE
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.pretrained import no_loading_report
from cotbert_core.errors import UserError
from cotbert_core.methods import METHODS, build_method
from cotbert_core.methods.tsdae import delete_tokens
from cotbert_core.settings import TrainSettings, override
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.training.batches import Batch
from tests.core.slow_reference import gradients


@pytest.fixture
def make(encoder_folder):
    """In eval mode: the decoder keeps dropout rates of its own."""

    def build(**changes):
        small = {"method.name": "tsdae", "batch_size": 6, "max_length": 8, "precision": "fp32"}
        settings = override(TrainSettings(encoder=encoder_folder), BARE | small | changes)
        torch.manual_seed(1)
        return build_method(load_backbone(encoder_folder, dropout=0.0), settings).eval()

    return build


@pytest.fixture
def batch(ids):
    return Batch(ids)


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.6, 0.99])
def test_tokens_are_deleted_at_the_rate_and_one_stays(rate):
    lengths, times = (50, 40, 1, 0, 7), 400
    sentences = Ragged.from_lists([list(range(n)) for n in lengths] * times)
    draws = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        draws.append(delete_tokens(sentences, rate))
    left = draws[0]
    assert [row.tolist() for row in left] == [row.tolist() for row in draws[1]]
    assert (len(left.flat) != len(draws[2].flat)) == (rate > 0), "torch's generator draws"
    for before, after in zip(sentences, left, strict=True):
        assert (np.diff(after) > 0).all(), "the order stays"
        assert set(after) <= set(before)
        assert (len(after) > 0) == (len(before) > 0), "an empty sentence stays empty"
    long = left.take(np.arange(0, len(left), len(lengths)))
    expected = max(50 * (1 - rate), 1)
    assert long.lengths.mean() == pytest.approx(expected, rel=0.2)
    places = np.bincount(long.flat, minlength=50) / times
    assert places.std() < 0.05, "no place is favoured"


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
def test_the_encoders_own_weights_are_trained(make, readout):
    method = make(**{"method.readout": readout})
    assert METHODS["tsdae"] is type(method)
    assert method.objective.encoder[0].model is method.encoder
    tied = dict(method.objective.decoder.base_model.named_parameters())
    for name, weight in method.encoder.named_parameters():
        if not name.startswith("pooler."):
            assert weight is tied[name], name


def test_without_the_package_the_error_says_how_to_get_it(make, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(
        UserError, match=r"tsdae needs sentence-transformers: install with pip install 'sent"
    ):
        make()
