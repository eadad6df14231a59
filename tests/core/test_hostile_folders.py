"""Model folders from elsewhere, damaged or made to do harm: one sentence, as a UserError."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from cotbert_core.encoder.pooling_config import load_pooling_config
from cotbert_core.errors import UserError
from cotbert_core.files import MOST_JSON_BYTES, read_json
from cotbert_core.sentence_encoder import SentenceEncoder

SETTINGS = {
    "format": 1,
    "readout": "mean",
    "template": None,
    "max_length": None,
    "full_stop": False,
    "normalize": False,
    "denoise": "none",
    "pad_positions": "aligned",
    "head": None,
    "blank": False,
    "method": None,
    "settings": None,
}
DEEP = "[" * 200_000 + "]" * 200_000
HOSTILE_SETTINGS = {
    "a list": "[]",
    "a number": "3",
    "no JSON": "{readout",
    "nested deep": DEEP,
    "bytes": "\x00\x01",
    "a long number": '{"format": ' + "9" * 5000 + "}",
    "no format": json.dumps({key: value for key, value in SETTINGS.items() if key != "format"}),
    "another format": json.dumps(SETTINGS | {"format": 3}),
    "a readout that is no text": json.dumps(SETTINGS | {"readout": ["mean"]}),
    "a length that is no number": json.dumps(SETTINGS | {"max_length": "32"}),
    "a length that is NaN": json.dumps(SETTINGS | {"max_length": float("nan")}),
    "a length below 1": json.dumps(SETTINGS | {"max_length": -5}),
    "a template that is a text": json.dumps(SETTINGS | {"template": "[X] [MASK]"}),
    "a template of numbers": json.dumps(SETTINGS | {"template": {"text": 3}}),
    "a template with an empty slot": json.dumps(
        SETTINGS | {"template": {"text": "[X] [MASK]", "slot": ""}}
    ),
    "a template with more": json.dumps(SETTINGS | {"template": {"text": "[X] [MASK]", "run": 1}}),
    "a head of its own": json.dumps(SETTINGS | {"head": {"name": "tanh"}}),
    "a flag that is a text": json.dumps(SETTINGS | {"normalize": "no"}),
    "settings that are a list": json.dumps(SETTINGS | {"settings": [1]}),
}
POOLING = {"type": "sentence_transformers.models.Pooling"}
HOSTILE_MODULES = {
    "an object": "{}",
    "no JSON": "[",
    "nested deep": DEEP,
    "texts": '["a"]',
    "no type": '[{"path": ""}]',
    "a type that is a number": '[{"type": 3, "path": ""}]',
    "no path": json.dumps([POOLING]),
    "a path that is a list": json.dumps([POOLING | {"path": ["a"]}]),
    "an absolute path": json.dumps([POOLING | {"path": "/etc"}]),
    "a path upwards": json.dumps([POOLING | {"path": "../other"}]),
    "a path up and down": json.dumps([POOLING | {"path": "1_Pooling/../../other"}]),
}


@pytest.fixture
def folder(tmp_path, bert_folder) -> Path:
    shutil.copytree(bert_folder, tmp_path / "model")
    return tmp_path / "model"


def check_refused(folder: Path) -> str:
    """The sentence that opening the folder ends with."""
    with pytest.raises(UserError) as error:
        SentenceEncoder.from_pretrained(folder)
    message = str(error.value)
    assert str(folder) in message
    assert len(message) < 1000
    return message


@pytest.mark.parametrize("text", HOSTILE_SETTINGS.values(), ids=list(HOSTILE_SETTINGS))
def test_a_hostile_cotbert_json_is_refused(folder, text):
    (folder / "cotbert.json").write_text(json.dumps(SETTINGS))
    SentenceEncoder.from_pretrained(folder)
    (folder / "cotbert.json").write_text(text)
    assert "cotbert.json" in check_refused(folder)


@pytest.mark.parametrize("text", HOSTILE_MODULES.values(), ids=list(HOSTILE_MODULES))
def test_a_hostile_modules_json_is_refused(folder, text):
    other = folder.with_name("other")
    other.mkdir()
    (other / "config.json").write_text('{"pooling_mode_cls_token": true}')
    (folder / "modules.json").write_text(text)
    check_refused(folder)


def test_a_module_that_is_a_link_out_of_the_folder_is_refused(folder, tmp_path):
    module = [POOLING | {"path": "1_Pooling"}]
    (folder / "modules.json").write_text(json.dumps(module))
    inside = folder / "1_Pooling"
    inside.mkdir()
    (inside / "config.json").write_text('{"pooling_mode_cls_token": true}')
    assert load_pooling_config(str(folder))["readout"] == "cls"
    inside.rename(tmp_path / "elsewhere")
    inside.symlink_to(tmp_path / "elsewhere")
    assert "outside the folder" in check_refused(folder)


def test_links_of_the_hubs_cache_are_its_own(tmp_path):
    """There a snapshot's files are links to blobs beside it."""
    cache = tmp_path / "models--a--b"
    module = cache / "snapshots" / "1234" / "1_Pooling"
    module.mkdir(parents=True)
    (cache / "blobs").mkdir()
    (cache / "blobs" / "abc").write_text('{"pooling_mode_cls_token": true}')
    (module / "config.json").symlink_to("../../../blobs/abc")
    (module.parent / "modules.json").write_text(json.dumps([POOLING | {"path": "1_Pooling"}]))
    assert load_pooling_config(str(module.parent))["readout"] == "cls"
    (module / "config.json").unlink()
    (cache / "secret").write_text('{"pooling_mode_cls_token": true}')
    (module / "config.json").symlink_to(cache / "secret")
    with pytest.raises(UserError, match="outside the folder"):
        load_pooling_config(str(module.parent))


@pytest.mark.parametrize("limit", ['"512"', "[]", "-3", "NaN", "true", "0"])
def test_a_hostile_limit_is_refused(folder, limit):
    modules = [{"type": "sentence_transformers.models.Transformer", "path": ""}]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 20}')
    assert load_pooling_config(str(folder))["max_length"] == 18
    (folder / "sentence_bert_config.json").write_text(f'{{"max_seq_length": {limit}}}')
    assert "max_seq_length" in check_refused(folder)


def header(length: int, text: bytes = b"") -> bytes:
    return struct.pack("<Q", length) + text


HOSTILE_WEIGHTS = {
    "nothing": b"",
    "a header of 2^60 bytes": header(1 << 60),
    "a header that is cut short": header(100, b'{"a"'),
    "a header that is no JSON": header(4, b"abcd"),
    "a header of a list": header(2, b"[]"),
    "nested deep": header(len(DEEP), DEEP.encode()),
    "places beyond the end": header(
        63, b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,99999999999]}}'
    ),
}


@pytest.mark.parametrize("data", HOSTILE_WEIGHTS.values(), ids=list(HOSTILE_WEIGHTS))
@pytest.mark.parametrize("name", ["model.safetensors", "head.safetensors"])
def test_hostile_weights_are_refused(folder, name, data):
    if name == "head.safetensors":
        (folder / "cotbert.json").write_text(json.dumps(SETTINGS | {"head": "tanh"}))
    (folder / name).write_bytes(data)
    check_refused(folder)


def test_weights_that_are_missing_or_of_another_shape_are_refused(folder):
    """Missing ones would be random: transformers only warns."""
    weights = load_file(folder / "model.safetensors")
    name = next(name for name in weights if "word_embeddings" in name)
    short = {key: value for key, value in weights.items() if key != name}
    save_file(short, folder / "model.safetensors", {"format": "pt"})
    assert "lacks 1 of its weights" in check_refused(folder)
    save_file(short | {name: torch.zeros(3, 5)}, folder / "model.safetensors", {"format": "pt"})
    check_refused(folder)
    pooler = {key: value for key, value in weights.items() if "pooler" not in key}
    save_file(pooler, folder / "model.safetensors", {"format": "pt"})
    SentenceEncoder.from_pretrained(folder)  # which is not used


def test_a_head_without_its_weights_is_refused(folder):
    (folder / "cotbert.json").write_text(json.dumps(SETTINGS | {"head": "tanh"}))
    save_file({"dense.weight": torch.zeros(2, 2)}, folder / "head.safetensors")
    assert "is not the tanh head" in check_refused(folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", "32"),
        ("hidden_size", 1.5),
        ("hidden_size", -32),
        ("vocab_size", 10**12),
        ("num_hidden_layers", 10**9),
        ("max_position_embeddings", 10**11),
        ("hidden_act", ["gelu"]),
        ("model_type", {"a": 1}),
    ],
)
def test_a_hostile_config_is_refused(folder, key, value):
    """Before the memory that it asks for is taken."""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {key: value}))
    check_refused(folder)


@pytest.mark.parametrize("text", ["", "[]", DEEP, '{"model": 3}', '{"version": "1.0"}'])
def test_a_hostile_tokenizer_is_refused(folder, text):
    shutil.rmtree(folder / "plain_tokenizer", ignore_errors=True)
    for name in ("vocab.txt", "tokenizer_config.json"):
        (folder / name).unlink(missing_ok=True)
    (folder / "tokenizer.json").write_text(text)
    check_refused(folder)


def test_json_without_end_is_refused(tmp_path):
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    with pytest.raises(UserError, match=r"cannot be read as JSON \(it is not a file"):
        read_json(tmp_path / "zero.json")
    with (tmp_path / "large.json").open("wb") as file:
        file.truncate(MOST_JSON_BYTES + 1)
    with pytest.raises(UserError, match="it has more than"):
        read_json(tmp_path / "large.json")
