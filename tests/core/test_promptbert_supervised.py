"""Supervised PromptBERT: triples, the heads that stay, and folders that remember them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from made_encoders import save_quietly, with_encoders

from benchmarks.method_table import ALONE, BARE
from cotbert_core import SentenceEncoder, UserError
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.heads import HEADS
from cotbert_core.methods import build_method
from cotbert_core.settings import TrainSettings, override
from cotbert_core.templates.tokenizing import end_with_full_stop
from tests.core import slow_reference
from tests.core.method_table import as_encoder
from tests.core.slow_reference import exact, wide_head


@pytest.fixture
def make(encoder_folder, tiny_settings, prompts):
    few = {"method.name": "promptbert-supervised", **ALONE, "templates.anchor": f"{prompts}/anchor"}
    return lambda **changes: wide_head(tiny_settings(encoder_folder, few | changes))


def encode(encoder, sentences):
    return encoder.encode(sentences, precision="fp32")


def assert_refused_by_other_libraries(folder):
    from sentence_transformers import SentenceTransformer
    from transformers import AutoTokenizer, BertTokenizer, RobertaTokenizer

    for trusted in (False, True):
        with pytest.raises(ImportError, match="only_cotbert_core_SentenceEncoder_reads_this"):
            SentenceTransformer(str(folder), device="cpu", trust_remote_code=trusted)
    for tokenizer in (AutoTokenizer, BertTokenizer, RobertaTokenizer):
        with pytest.raises(Exception, match="SentenceEncoder alone reads this folder: see README"):
            tokenizer.from_pretrained(folder)
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "**Only `cotbert_core` reads this folder**" in card
    assert "from sentence_transformers" not in card
    assert "from transformers" not in card
    assert "library_name" not in card


@with_encoders(
    "head denoise",
    *product(["bert"], HEADS, ["position", "pad"]),
    ("roberta", "tanh", "none"),
    ("roberta", "transform", "position"),
)
def test_head_and_denoising_stay_at_inference(make, exact_model, sentences, head, denoise):
    method = make(**{"method.head": head, "method.denoise": denoise})
    texts = [end_with_full_stop(s) for s in sentences]
    ids = method.backbone.tokenizer(texts, 100)
    with torch.no_grad():
        slow = slow_reference.vectors(
            exact_model, exact(method.kept_head), method.anchor, ids, denoise
        )
    expected = torch.stack(slow).numpy()
    for encoder in (as_encoder(method), method.sentence_encoder):
        np.testing.assert_allclose(encode(encoder, sentences), expected, atol=1e-5, rtol=0)
        small = encoder.encode(sentences, batch_tokens=40, precision="fp32")
        np.testing.assert_allclose(small, expected, atol=1e-5, rtol=0)
        rounded = encoder.encode(sentences, precision="bf16")
        np.testing.assert_allclose(rounded, expected, atol=0.3, rtol=0)
        assert rounded.dtype == np.float32
    assert expected.std(axis=0).mean() > 1e-2, "premise: sentences differ"


@pytest.mark.parametrize(
    ("head", "denoise", "reason"),
    [
        ("transform", "position", "a template's bias is subtracted"),
        ("tanh", "pad", "a template's bias is subtracted"),
        ("transform", "none", "its head has a layer norm"),
    ],
)
def test_a_saved_folder_is_read_here_alone(make, sentences, tmp_path, head, denoise, reason):
    encoder = as_encoder(make(**{"method.head": head, "method.denoise": denoise}))
    expected = encode(encoder, sentences)
    with pytest.warns(UserWarning, match=f"because {reason}"):
        encoder.save_pretrained(tmp_path / "saved")
    again = SentenceEncoder.from_pretrained(tmp_path / "saved")
    assert again.pooling == encoder.pooling
    assert np.array_equal(encode(again, sentences), expected)
    save_quietly(again, tmp_path / "second")
    second = SentenceEncoder.from_pretrained(tmp_path / "second")
    assert np.array_equal(encode(second, sentences), expected)
    assert_refused_by_other_libraries(tmp_path / "saved")


def test_a_reading_and_its_head_go_together(make):
    method = make()
    with pytest.raises(UserError, match="head is 'transform' and the head given is"):
        SentenceEncoder(method.finished, method.pooling)


def test_another_reading_of_the_folder_leaves_head_and_bias_out(
    make, encoder_folder, sentences, tmp_path
):
    encoder = as_encoder(make())
    save_quietly(encoder, tmp_path / "saved")
    for other in ({"readout": "mean"}, {"template": "denosent"}):
        again = SentenceEncoder.from_pretrained(tmp_path / "saved", **other)
        assert (again.head, again.pooling.head, again.pooling.denoise) == (None, None, "none")
    plain = SentenceEncoder.from_pretrained(encoder_folder, template="denosent")
    assert np.array_equal(encode(again, sentences), encode(plain, sentences))
    bare = SentenceEncoder.from_pretrained(tmp_path / "saved", denoise="none")
    assert bare.pooling.head == "transform"
    assert np.abs(encode(bare, sentences) - encode(encoder, sentences)).max() > 0.1


def test_tsdae_cannot_begin_from_a_folder_that_is_read_here_alone(make, tmp_path):
    save_quietly(as_encoder(make()), tmp_path / "saved")
    changes = {"method.name": "tsdae", **BARE}
    settings = override(TrainSettings(encoder=str(tmp_path / "saved")), changes)
    with pytest.raises(
        UserError, match="method tsdae opens its encoder with sentence-transformers"
    ):
        build_method(load_backbone(str(tmp_path / "saved")), settings)
