"""Saved folders: sentence-transformers and transformers read them as we do, without our code."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from made_encoders import made_encoder

from cotbert_core import SentenceEncoder, UserError
from cotbert_core.evaluation.pairs import cosines
from cotbert_core.files import UNFINISHED, read_json, write_json
from cotbert_core.saving.lineage import CARD_FILE
from cotbert_core.saving.model_card_code import EXAMPLE
from cotbert_core.saving.model_folder import READOUT_TOKEN

# Reading by name: readout and template, "{f}" standing for the family.
READINGS = {
    "one mask": ("mask", "{f}/only-prefix/anchor"),
    "two masks": ("mask", "{f}/anchor"),
    "three masks": ("mask", "[MASK] : ' [X] ' means [MASK] , so it is [MASK] ."),
    "mask before": ("mask", "The word [MASK] means ' [X] ' ."),
    "mean": ("mean", None),
    "cls": ("cls", None),
    "cls of a template": ("cls", "{f}/anchor"),
    "mean of a template": ("mean", "{f}/anchor"),
    "cls behind a tanh head": ("cls", None),
}
PYTHON_BLANKS = [c for c in map(chr, range(0x3100)) if c.isspace()]
TRICKY = [
    "A man is playing the guitar.",
    "A man is playing the guitar",
    "",
    "   \n ",
    "a [MASK] typed and <mask> too",
    "[PAD] <pad> </s> <s> [SEP] [CLS] [UNK] <unk>",
    f"{READOUT_TOKEN} typed",
    " the\tdogs \n\n run\r\nacross  the field \n",
    "the".join(PYTHON_BLANKS),
    'She said "no"',
    "the dogs'",
    "What do you want?",
    "Two dogs run!",
    "the dogs run .",
    "It's ' quoted ' \" twice \"",
    "the green field " * 100,
    "日本語 é e\u0301 ß ﬁ İ 😀 \u200b \ufeff",
    "oil\x00 price",
    "A MAN",
]


# RoBERTa's without a mask are in test_servers.
MADE = [("bert", name) for name in READINGS]
MADE += [("roberta", name) for name in READINGS if "mask" in name or "tanh" in name]


@pytest.fixture(params=MADE, ids="-".join)
def encoder(request):
    family, name = request.param
    folder = request.getfixturevalue(f"{family}_folder")
    head = "tanh" if "tanh" in name else None
    how = {"normalize": name == "mask before", "method": "cot-bert"}
    return made_encoder(folder, f"cot-{family}", *READINGS[name], head, **how)


@pytest.fixture
def two_masks(encoder_folder, family):
    return SentenceEncoder.from_pretrained(encoder_folder, template=f"{family}/anchor")


def ours(encoder):
    return encoder.encode(TRICKY, precision="fp32")


def by_sentence_transformers(folder):
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu").encode(TRICKY)


def assert_same(vectors, expected):
    far = np.flatnonzero(cosines(vectors, expected) < 1 - 1e-6)
    assert not [TRICKY[i][:40] for i in far]
    np.testing.assert_allclose(vectors, expected, atol=1e-4, rtol=0)


def test_the_blocks_of_a_card_run_and_give_the_same_vectors(encoder, tmp_path, monkeypatch):
    """By sentence-transformers, by transformers and by this package."""
    expected, rows = ours(encoder), len(encoder.backbone.model.get_input_embeddings().weight)
    assert expected.std(axis=0).mean() > 1e-2, "premise: sentences differ"
    encoder.save_pretrained(tmp_path / "saved")
    assert len(encoder.backbone.model.get_input_embeddings().weight) == rows
    assert np.array_equal(ours(encoder), expected), "saving leaves the encoder as it was"
    monkeypatch.chdir(tmp_path / "saved")
    card = Path(CARD_FILE).read_text(encoding="utf-8")
    by_others, by_transformers, by_us = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    for block in (by_others, by_transformers, by_us):
        assert block.count(EXAMPLE) == 1
        names = {}
        exec(block.replace(EXAMPLE, repr(TRICKY)), names)
        if block is by_us:  # in bf16 where the machine has it
            np.testing.assert_allclose(names["vectors"], expected, atol=0.1, rtol=0)
        else:
            assert_same(np.asarray(names["vectors"]), expected)


def test_a_folder_is_read_as_it_was_and_saved_again_is_still_right(encoder, tmp_path):
    encoder.save_pretrained(tmp_path / "first")
    again = SentenceEncoder.from_pretrained(tmp_path / "first")
    assert again.pooling == encoder.pooling
    assert (again.bound, again.max_length) == (encoder.bound, encoder.max_length)
    again.save_pretrained(tmp_path / "second")
    expected = ours(encoder)
    assert np.array_equal(ours(SentenceEncoder.from_pretrained(tmp_path / "second")), expected)
    assert_same(by_sentence_transformers(tmp_path / "second"), expected)


def test_a_folder_trained_further_is_saved_right(two_masks, tmp_path):
    """The copied embedding of the read token must follow the mask's when that has moved."""
    two_masks.save_pretrained(tmp_path / "first")
    again = SentenceEncoder.from_pretrained(tmp_path / "first")
    with torch.no_grad():
        weight = again.backbone.model.get_input_embeddings().weight
        weight[again.bound.mask_id] = weight[again.bound.mask_id].flip(0)
    assert np.abs(ours(again) - ours(two_masks)).max() > 0.1, "premise"
    again.save_pretrained(tmp_path / "second")
    assert_same(by_sentence_transformers(tmp_path / "second"), ours(again))


def test_a_saved_folder_can_be_read_another_way(two_masks, encoder_folder, family, tmp_path):
    two_masks.save_pretrained(tmp_path / "saved")
    for other in ({"readout": "mean"}, {"template": f"{family}/only-prefix/anchor"}):
        again = SentenceEncoder.from_pretrained(tmp_path / "saved", **other)
        fresh = SentenceEncoder.from_pretrained(encoder_folder, **other)
        again.pooling = replace(again.pooling, full_stop=fresh.pooling.full_stop)
        assert np.array_equal(ours(again), ours(fresh))


@pytest.mark.parametrize("more", [{"normalize": True}, {"max_length": 5}])
def test_normalize_and_max_length_are_remembered(two_masks, more, tmp_path):
    encoder = SentenceEncoder(two_masks.backbone, replace(two_masks.pooling, **more))
    encoder.save_pretrained(tmp_path / "saved")
    assert np.abs(ours(encoder) - ours(two_masks)).max() > 0.1, "premise"
    assert_same(by_sentence_transformers(tmp_path / "saved"), ours(encoder))
    assert np.array_equal(ours(SentenceEncoder.from_pretrained(tmp_path / "saved")), ours(encoder))


def test_only_an_empty_place_is_written(two_masks, tmp_path):
    (tmp_path / "mine").write_text("keep")
    for taken in (tmp_path, tmp_path / "mine"):
        with pytest.raises(UserError, match="already holds something"):
            two_masks.save_pretrained(taken)
    assert (tmp_path / "mine").read_text() == "keep"
    (tmp_path / "saved").mkdir()
    killed = tmp_path / "saved.partial" / UNFINISHED
    killed.mkdir(parents=True)
    (killed / "old").write_text("from a run that was killed")
    two_masks.save_pretrained(tmp_path / "saved")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine", "saved"]
    assert not (tmp_path / "saved" / "old").exists()


@pytest.mark.parametrize("mode", ["cls", "mean", "max"])
def test_a_sentence_transformers_folder_is_read_by_its_own_pooling(encoder_folder, tmp_path, mode):
    from sentence_transformers import SentenceTransformer, models

    transformer = models.Transformer(encoder_folder, max_seq_length=12)
    pooling = models.Pooling(32, pooling_mode=mode)
    peer = SentenceTransformer(modules=[transformer, pooling, models.Normalize()], device="cpu")
    peer.save(str(tmp_path / "saved"))
    if mode == "max":
        file = tmp_path / "saved/1_Pooling/config.json"
        both = {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}
        for values in (read_json(file), both):
            write_json(file, values)
            with pytest.raises(UserError, match="a pooling mode other than cls or mean"):
                SentenceEncoder.from_pretrained(tmp_path / "saved")
        return
    encoder = SentenceEncoder.from_pretrained(tmp_path / "saved")
    assert (encoder.pooling.readout, encoder.pooling.normalize) == (mode, True)
    assert encoder.max_length == 10
    plain = ["the green field " * 9, "A man", "the dogs run"]
    gap = np.abs(encoder.encode(plain, precision="fp32") - peer.encode(plain)).max()
    assert gap < 1e-5
