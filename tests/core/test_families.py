"""Encoders of other families than BERT and RoBERTa: encoding, a training step, a saved folder."""

from __future__ import annotations

import math
import shutil

import numpy as np
import pretend_gpu
import pytest
import torch
from pretend_gpu import pretended_gpu
from sentence_transformers import SentenceTransformer
from transformers import AutoConfig, AutoModel, AutoTokenizer

from cotbert_core import SentenceEncoder
from cotbert_core.encoder.backbone import SUPPORTED, load_backbone
from cotbert_core.encoder.dropout import has_dropout
from cotbert_core.encoder.row_limits import least_tokens, most_tokens
from cotbert_core.errors import UserError
from cotbert_core.evaluation.pairs import cosines
from cotbert_core.files import write_json
from cotbert_core.methods import build_method
from cotbert_core.settings import TrainSettings, override
from cotbert_core.training import devices
from cotbert_core.training.batches import Batch
from tests.core.method_table import METHODS

WIDE = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
SMALL = {**WIDE, "num_hidden_layers": 2}
FAMILIES = dict.fromkeys(sorted({*SUPPORTED} - {"bert", "roberta"}), SMALL) | {
    "albert": {**SMALL, "embedding_size": 16},
    "deberta-v2": {**SMALL, "relative_attention": True},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64},
    "electra": {**SMALL, "embedding_size": 16},
    **{
        name: {**SMALL, "max_position_embeddings": 128}
        for name in ("eurobert", "gte", "jina_embeddings_v3")
    },
    "modernbert": {
        **WIDE,
        "num_hidden_layers": 3,
        "max_position_embeddings": 128,
        **{f"{name}_token_id": 3 for name in ("bos", "cls", "eos", "sep")},
    },
}


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request, bert_folder, tmp_path_factory):
    """A tiny random encoder of a family, made once for all tests, which only read it."""
    tokenizer = AutoTokenizer.from_pretrained(bert_folder)
    sizes = {"vocab_size": len(tokenizer), "pad_token_id": 0, "initializer_range": 0.2}
    config = AutoConfig.for_model(request.param, **sizes, **FAMILIES.get(request.param, SMALL))
    place = tmp_path_factory.mktemp("family") / "encoder"
    torch.manual_seed(0)
    AutoModel.from_config(config).save_pretrained(place)
    tokenizer.save_pretrained(place)
    return str(place)


@pytest.mark.parametrize("folder", ["convbert", "gpt2"], indirect=True)
def test_another_family_is_refused(folder):
    with pytest.raises(UserError, match=r"family '(convbert|gpt2)', which is not .* albert, bert,"):
        load_backbone(folder)


@pytest.mark.parametrize("folder", ["mpnet"], indirect=True)
def test_an_attention_that_the_family_lacks_is_refused(folder):
    with pytest.raises(UserError, match=r"'sdpa' and transformers has none .*: set attention=auto"):
        load_backbone(folder, attention="sdpa")


def test_another_family_is_refused_before_its_weights_are_missed(bert_folder, tmp_path):
    """T5's encoder alone lacks those of a decoder."""
    folder = tmp_path / "encoder"
    shutil.copytree(bert_folder, folder)
    write_json(folder / "config.json", {"model_type": "t5"})
    with pytest.raises(UserError, match="family 't5', which is not supported"):
        load_backbone(str(folder))


def test_each_family_is_opened_on_a_gpu(folder, monkeypatch):
    """transformers refuses `sdpa` for the families that lack it."""
    monkeypatch.setattr(devices, "_chosen", None)
    with pretended_gpu():
        backbone = load_backbone(folder)
    lacks = ("deberta", "deberta-v2", "megatron-bert", "mpnet", "rembert", "roformer")
    attention = "eager" if backbone.model.config.model_type in lacks else "sdpa"
    expected = (pretend_gpu.CUDA, attention)
    assert (backbone.device, backbone.attention) == expected


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_dropout_replaces_every_rate_of_the_family(folder, rate):
    model = load_backbone(folder, dropout=rate).model.train()
    ids = torch.arange(5, 25)[None]
    with torch.no_grad():
        first, second = (model(input_ids=ids).last_hidden_state for _ in range(2))
    assert torch.equal(first, second) is (rate == 0)
    assert has_dropout(model) is (rate > 0)


def test_vectors_are_the_mean_of_transformers_last_layer(folder, sentences):
    model = AutoModel.from_pretrained(folder, dtype=torch.float64).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    expected = []
    for sentence in sentences:
        inputs = tokenizer(sentence, return_tensors="pt", return_token_type_ids=False)
        with torch.no_grad():
            expected.append(model(**inputs).last_hidden_state[0].mean(dim=0).numpy())
    found = SentenceEncoder.from_pretrained(folder).encode(sentences, precision="fp32")
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_a_config_alone_does_not_promise_too_many_tokens(folder):
    assert 0 < least_tokens(folder) <= (most_tokens(folder) or math.inf)


def test_bf16_gives_about_the_vectors_of_fp32(folder, sentences):
    encoder = SentenceEncoder.from_pretrained(folder)
    expected, found = (encoder.encode(sentences, precision=one) for one in ("fp32", "bf16"))
    assert cosines(found, expected).min() > 0.999
    assert not np.array_equal(found, expected), "premise: bf16 rounds"


def test_a_step_trains_the_encoder_and_other_libraries_read_it(
    folder, sentences, tiny_settings, tmp_path
):
    roles = {"templates.anchor": "promptbert/anchor", "templates.positive": "promptbert/positive"}
    changes = {"method.name": "promptbert", "templates.negative": None, "batch_size": 6, **roles}
    method = build_method(load_backbone(folder), tiny_settings(folder, changes))
    before = method.sentence_encoder.encode(sentences, precision="fp32")
    optimizer = torch.optim.SGD(method.encoder.parameters(), lr=0.01)
    method(Batch(method.backbone.tokenizer(sentences, 8))).loss.backward()
    optimizer.step()
    after = method.sentence_encoder.encode(sentences, precision="fp32")
    assert np.abs(after - before).max() > 1e-3
    method.sentence_encoder.save_pretrained(tmp_path / "trained")
    for vectors in (
        SentenceEncoder.from_pretrained(tmp_path / "trained").encode(sentences, precision="fp32"),
        SentenceTransformer(str(tmp_path / "trained"), device="cpu").encode(sentences),
    ):
        np.testing.assert_allclose(vectors, after, atol=1e-5)


@pytest.mark.parametrize(
    ("folder", "name"),
    [("albert", "consert"), ("albert", "pcl"), ("eurobert", "consert")],
    indirect=["folder"],
)
def test_embeddings_and_a_pooler_unlike_berts(folder, sentences, tiny_settings, name):
    method = build_method(load_backbone(folder), tiny_settings(folder, METHODS[name]))
    if name == "pcl":
        assert torch.equal(method.pooler.dense.weight, method.encoder.pooler.weight)
    loss = method(Batch(method.backbone.tokenizer(sentences, 8))).loss
    loss.backward()
    assert torch.isfinite(loss)


@pytest.mark.parametrize("folder", ["deberta-v2"], indirect=True)
@pytest.mark.parametrize(
    ("name", "setting", "off"),
    [
        ("promptbert", "method.denoise=position", {"method.denoise": "pad"}),
        ("consert", "method.shuffle=true", {"method.shuffle": False}),
    ],
)
def test_position_ids_without_effect_are_noted(folder, tiny_settings, name, setting, off):
    method = build_method(load_backbone(folder), tiny_settings(folder, METHODS[name]))
    wanted = f"the position ids that {setting} changes have no effect"
    assert not any(wanted in note for note in method.notes(()))
    method.encoder.config.position_biased_input = False  # as in DeBERTa v3
    assert any(wanted in note for note in method.notes(()))
    changes_none = build_method(method.backbone, tiny_settings(folder, METHODS[name] | off))
    assert not any("position ids" in note for note in changes_none.notes(()))


@pytest.mark.parametrize("folder", ["distilbert"], indirect=True)
def test_tsdae_refuses_a_family_without_a_decoder(folder):
    settings = override(TrainSettings(encoder=folder), METHODS["tsdae"])
    with pytest.raises(UserError, match="family 'distilbert', for which transformers has no dec"):
        build_method(load_backbone(folder), settings)
