"""How an encoder is read: what may be asked together, what a folder remembers, and denoising."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from cotbert_core import SentenceEncoder, UserError
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.locations import POOLING_CONFIG_FILE
from cotbert_core.encoder.pooling_config import PoolingConfig
from cotbert_core.encoder.pooling_files import (
    load_pooling_config,
    resolve_pooling_config,
    save_pooling_config,
)
from cotbert_core.templates.template_texts import Template, resolve_template
from cotbert_core.templates.tokenizing import end_with_full_stop
from tests.core import slow_reference

TEMPLATE = Template("' {} ' means <mask> .", slot="{}", mask="<mask>")
# What a folder written before denoising and heads stayed at inference holds.
OLD_KEYS = {
    "format", "readout", "template", "max_length", "full_stop", "normalize", "method", "settings",
}  # fmt: skip


@pytest.fixture
def open_encoder(encoder_folder, family):
    def make(template="anchor", **more):
        name = f"{family}/{template}" if template else None
        return SentenceEncoder.from_pretrained(encoder_folder, template=name, **more)

    return make


def encode(encoder, sentences):
    return encoder.encode(sentences, precision="fp32")


@pytest.mark.parametrize("template", ["anchor", "only-prefix/anchor"])
@pytest.mark.parametrize("denoise", ["position", "pad"])
def test_denoised_vectors_equal_one_sentence_at_a_time(
    open_encoder, exact_model, sentences, denoise, template
):
    encoder = open_encoder(template, denoise=denoise)
    ids = encoder.backbone.tokenizer([end_with_full_stop(s) for s in sentences], 100)
    with torch.no_grad():
        slow = slow_reference.vectors(exact_model, None, encoder.bound, ids, denoise)
    expected = torch.stack(slow).numpy()
    np.testing.assert_allclose(encode(encoder, sentences), expected, atol=1e-5, rtol=0)
    assert expected.std(axis=0).mean() > 1e-2, "premise: sentences differ"
    many = [*sentences, *sentences[::-1]]
    found = encoder.encode(many, batch_tokens=40, precision="fp32")
    np.testing.assert_allclose(found, np.concatenate([expected, expected[::-1]]), atol=1e-5, rtol=0)
    unit = encoder.encode(sentences, normalize=True, precision="fp32")
    lengths = np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(unit, expected / lengths, atol=1e-5, rtol=0)


@pytest.mark.parametrize("denoise", ["position", "pad"])
def test_a_denoised_empty_text_has_no_direction(open_encoder, sentences, denoise):
    """It is the template itself. Rounding errors, scaled to unit length, would differ by batch."""
    encoder = open_encoder(denoise=denoise)
    assert not encoder.encode(["", *sentences], normalize=True, precision="fp32")[0].any()


def test_released_pads_differ_in_roberta_alone(open_encoder, sentences, family):
    aligned = open_encoder(denoise="pad")
    released = SentenceEncoder(aligned.backbone, replace(aligned.pooling, pad_positions="released"))
    gap = np.abs(encode(aligned, sentences) - encode(released, sentences)).max()
    assert (gap > 1e-2) == (family == "cot-roberta")


@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        ({"readout": "median"}, "unknown readout 'median': choose one of cls, mask, mean"),
        ({"readout": "mask"}, "readout is 'mask' and there is no template: give a template too"),
        ({"template": TEMPLATE, "denoise": "pads"}, "unknown denoising mode 'pads': choose one of"),
        ({"denoise": "position"}, "denoise is 'position' with the mean readout"),
        (
            {"template": TEMPLATE, "readout": "cls", "denoise": "pad"},
            "denoise is 'pad' with the cls readout: denoising subtracts a template's mask vector",
        ),
        ({"max_length": 0}, "max_length is 0: give a whole number of tokens, at least 1"),
        ({"max_length": -1}, "max_length is -1: give a whole number of tokens"),
        # The folder that they were saved in could not be opened.
        ({"max_length": 5.5}, "max_length is 5.5: give a whole number of tokens"),
        ({"max_length": True}, "max_length is True: give a whole number of tokens"),
        ({"max_length": "5"}, "max_length is '5': give a whole number of tokens"),
    ],
)
def test_what_cannot_be_read_is_reported(bert_folder, asked, fault):
    with pytest.raises(UserError, match=fault):
        resolve_pooling_config(bert_folder, **asked)
    with pytest.raises(UserError, match="unknown head 'dense': choose one of tanh, transform"):
        PoolingConfig(head="dense")


@pytest.mark.parametrize(
    "pooling",
    [
        PoolingConfig(),
        PoolingConfig("cls", blank=True, head="tanh", method="simcse", settings={"seed": 1}),
        PoolingConfig("mean", blank=True, normalize=True, max_length=7),
        PoolingConfig("mask", TEMPLATE, empty_blank=True, last=((5, 600), (7, 601))),
        PoolingConfig(
            "mask",
            TEMPLATE,
            full_stop=True,
            denoise="pad",
            pad_positions="released",
            head="transform",
            method="promptbert-supervised",
        ),
    ],
)
def test_a_folder_remembers_every_field(tmp_path, pooling):
    save_pooling_config(pooling, tmp_path)
    assert json.loads((tmp_path / POOLING_CONFIG_FILE).read_text())["format"] == 1
    assert PoolingConfig(**load_pooling_config(str(tmp_path))) == pooling
    assert resolve_pooling_config(str(tmp_path)) == pooling


def test_an_older_folder_still_opens(open_encoder, sentences, tmp_path):
    encoder = open_encoder()
    encoder.save_pretrained(tmp_path / "saved")
    path = tmp_path / "saved" / POOLING_CONFIG_FILE
    values = json.loads(path.read_text())
    assert set(values) > OLD_KEYS, "premise"
    path.write_text(json.dumps({k: v for k, v in values.items() if k in OLD_KEYS}))
    again = SentenceEncoder.from_pretrained(tmp_path / "saved")
    assert again.pooling == encoder.pooling
    assert np.array_equal(encode(again, sentences), encode(encoder, sentences))


def test_what_is_asked_for_changes_what_the_folder_remembers(bert_folder, tmp_path):
    trained = PoolingConfig(
        "mask", TEMPLATE, 9, full_stop=True, normalize=True, denoise="pad", head="tanh"
    )
    save_pooling_config(trained, tmp_path)
    folder = str(tmp_path)
    assert resolve_pooling_config(folder, max_length=4) == replace(trained, max_length=4)
    assert resolve_pooling_config(folder, readout="mask") == trained
    assert resolve_pooling_config(folder, denoise="position") == replace(
        trained, denoise="position"
    )
    other = resolve_pooling_config(folder, "promptbert/manual")
    assert other == PoolingConfig("mask", resolve_template("promptbert/manual"), full_stop=True)
    exchanged = replace(trained, last=((5, 600),), denoise="none")
    save_pooling_config(exchanged, tmp_path)
    assert resolve_pooling_config(folder).last == ((5, 600),)
    assert resolve_pooling_config(folder, "promptbert/manual").last == ()
    mean = resolve_pooling_config(folder, readout="mean")
    assert mean == PoolingConfig("mean", max_length=9, full_stop=True)
    assert resolve_pooling_config(bert_folder) == PoolingConfig()


def test_the_tokens_of_a_blank_reading_are_those_of_a_corpus(roberta_folder):
    backbone = load_backbone(roberta_folder)
    seen = []
    backbone.model.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(kwargs["input_ids"][0].tolist()), with_kwargs=True
    )
    for blank in (True, False):
        SentenceEncoder(backbone, PoolingConfig("mean", blank=blank)).encode(["A man"])
    with_blank = backbone.tokenizer(["A man"], 8)[0].tolist()
    assert [row[1:-1] == with_blank for row in seen] == [True, False]
    assert PoolingConfig("cls", TEMPLATE).leading_blank
