"""Model folders from elsewhere, damaged or made to do harm: one sentence, as a UserError."""

from __future__ import annotations

import json
import os
import shutil
import struct
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from cotbert_core.encoder.pooling_config import PoolingConfig
from cotbert_core.encoder.pooling_files import load_pooling_config
from cotbert_core.errors import UserError
from cotbert_core.files import MOST_JSON_BYTES, read_json
from cotbert_core.sentence_encoder import SentenceEncoder

SETTINGS = {"format": 1, **asdict(PoolingConfig())}
DEEP = "[" * 200_000 + "]" * 200_000
# Text of cotbert.json -> words of the refusal.
HOSTILE_SETTINGS = {
    "[]": "is not a JSON object",
    "3": "is not a JSON object",
    "{readout": "cannot be read as JSON",
    DEEP: "nested too deep",
    "\x00\x01": "cannot be read as JSON",
    '{"format": ' + "9" * 5000 + "}": "cannot be read as JSON",
    json.dumps(SETTINGS | {"whitening": "all", "zoom": 2}): "has the fields whitening, zoom, which",
    json.dumps(SETTINGS | {"format": 3}): "is not of format 1",
    json.dumps(SETTINGS | {"format": None}): "is not of format 1",
    **{
        json.dumps(SETTINGS | {name: value}): f"gives {name} as "
        for name, value in (
            ("readout", ["mean"]),
            ("max_length", "32"),
            ("max_length", float("nan")),
            ("max_length", -5),
            ("template", "[X] [MASK]"),
            ("template", {"text": 3}),
            ("template", {"text": "[X] [MASK]", "slot": ""}),
            ("template", {"text": "[X] [MASK]", "run": 1}),
            ("head", {"name": "tanh"}),
            ("normalize", "no"),
            ("settings", [1]),
        )
    },
}
POOLING = {"type": "sentence_transformers.models.Pooling"}
CLS = '{"pooling_mode_cls_token": true}'
HOSTILE_MODULES = {
    "{}": "is not a list of modules",
    "[": "cannot be read as JSON",
    DEEP: "nested too deep",
    '["a"]': "a module without a type and a path",
    '[{"path": ""}]': "a module without a type and a path",
    '[{"type": 3, "path": ""}]': "a module without a type and a path",
    json.dumps([POOLING]): "a module without a type and a path",
    json.dumps([POOLING | {"path": ["a"]}]): "a module without a type and a path",
    json.dumps([POOLING | {"path": "/etc"}]): "'/etc', which is outside the folder",
    json.dumps([POOLING | {"path": "../other"}]): "'../other', which is outside the folder",
    json.dumps([POOLING | {"path": "a/../../other"}]): "which is outside the folder",
}


@pytest.fixture
def folder(tmp_path, bert_folder) -> Path:
    shutil.copytree(bert_folder, tmp_path / "model")
    return tmp_path / "model"


def check_refused(folder: Path, words: str) -> None:
    """Opening the folder ends with one sentence that names it and has these words."""
    with pytest.raises(UserError) as error:
        SentenceEncoder.from_pretrained(folder)
    message = str(error.value)
    assert str(folder) in message
    assert words in message
    assert len(message) < 1000


@pytest.mark.parametrize("text", HOSTILE_SETTINGS, ids=lambda text: text[-60:])
def test_a_hostile_cotbert_json_is_refused(folder, text):
    (folder / "cotbert.json").write_text(text)
    check_refused(folder, HOSTILE_SETTINGS[text])


def test_the_settings_are_read_where_none_of_them_is_hostile(folder):
    (folder / "cotbert.json").write_text(json.dumps(SETTINGS))
    assert SentenceEncoder.from_pretrained(folder).pooling.readout == SETTINGS["readout"]


@pytest.mark.parametrize("text", HOSTILE_MODULES, ids=lambda text: text[-60:])
def test_a_hostile_modules_json_is_refused(folder, text):
    other = folder.with_name("other")
    other.mkdir()
    (other / "config.json").write_text(CLS)
    (folder / "modules.json").write_text(text)
    check_refused(folder, HOSTILE_MODULES[text])


def test_a_module_that_is_a_link_out_of_the_folder_is_refused(folder, tmp_path):
    (folder / "modules.json").write_text(json.dumps([POOLING | {"path": "1_Pooling"}]))
    inside = folder / "1_Pooling"
    inside.mkdir()
    (inside / "config.json").write_text(CLS)
    assert load_pooling_config(str(folder))["readout"] == "cls"
    inside.rename(tmp_path / "elsewhere")
    inside.symlink_to(tmp_path / "elsewhere")
    check_refused(folder, "outside the folder")


def test_links_of_the_hubs_cache_are_its_own(tmp_path):
    """There a snapshot's files are links to blobs beside it."""
    cache = tmp_path / "models--a--b"
    module = cache / "snapshots" / "1234" / "1_Pooling"
    module.mkdir(parents=True)
    (cache / "blobs").mkdir()
    (cache / "blobs" / "abc").write_text(CLS)
    (module / "config.json").symlink_to("../../../blobs/abc")
    (module.parent / "modules.json").write_text(json.dumps([POOLING | {"path": "1_Pooling"}]))
    assert load_pooling_config(str(module.parent))["readout"] == "cls"
    (module / "config.json").unlink()
    (cache / "secret").write_text(CLS)
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
    check_refused(folder, "gives max_seq_length as ")


def test_a_folder_whose_encoder_lies_in_a_folder_inside_is_refused(folder):
    """As sentence-transformers wrote it before it kept the encoder beside modules.json."""
    (folder / "0_BERT").mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).rename(folder / "0_BERT" / name)
    modules = [{"type": "sentence_transformers.models.BERT", "path": "0_BERT"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    check_refused(folder, "open it with a newer one and save it again")


def test_a_folder_without_a_tokenizer_is_refused(folder):
    """transformers makes a tokenizer that reads every word as unknown."""
    for file in folder.glob("*token*"):
        file.unlink()
    check_refused(folder, "has no tokenizer")


BEYOND = b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,99999999999]}}'
HOSTILE_WEIGHTS = {
    "nothing": b"",
    "a header of 2^60 bytes": struct.pack("<Q", 1 << 60),
    "a header that is cut short": struct.pack("<Q", 1 << 20) + b'{"a"',
    "a header that is no JSON": struct.pack("<Q", 4) + b"abcd",
    "a header of a list": struct.pack("<Q", 2) + b"[]",
    "nested deep": struct.pack("<Q", len(DEEP)) + DEEP.encode(),
    "places beyond the end": struct.pack("<Q", len(BEYOND)) + BEYOND,
}


@pytest.mark.parametrize("data", HOSTILE_WEIGHTS.values(), ids=list(HOSTILE_WEIGHTS))
@pytest.mark.parametrize("name", ["model.safetensors", "head.safetensors"])
def test_hostile_weights_are_refused(folder, name, data):
    if name == "head.safetensors":
        (folder / "cotbert.json").write_text(json.dumps(SETTINGS | {"head": "tanh"}))
    # As large as the encoder's own: with fewer bytes its configuration is refused first.
    size = (folder / "model.safetensors").stat().st_size if data else 0
    (folder / name).write_bytes(data + bytes(max(0, size - len(data))))
    check_refused(folder, "Error while deserializing header")


def test_weights_that_are_missing_or_of_another_shape_are_refused(folder):
    """Missing ones would be random: transformers only warns."""
    weights = load_file(folder / "model.safetensors")
    name = next(name for name in weights if "word_embeddings" in name)
    short = {key: value for key, value in weights.items() if key != name}
    save_file(short, folder / "model.safetensors", {"format": "pt"})
    check_refused(folder, "lacks 1 of its weights")
    save_file(short | {name: torch.zeros(3, 5)}, folder / "model.safetensors", {"format": "pt"})
    check_refused(folder, "cannot be loaded")
    pooler = {key: value for key, value in weights.items() if "pooler" not in key}
    save_file(pooler, folder / "model.safetensors", {"format": "pt"})
    SentenceEncoder.from_pretrained(folder)  # which is not used
    (folder / "cotbert.json").write_text(json.dumps(SETTINGS | {"head": "tanh"}))
    save_file({"dense.weight": torch.zeros(2, 2)}, folder / "head.safetensors")
    check_refused(folder, "is not the tanh head")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("hidden_size", "32", "field 'hidden_size'"),
        ("hidden_size", 1.5, "field 'hidden_size'"),
        ("hidden_size", -32, "gives hidden_size as '-32'"),
        ("vocab_size", 10**12, "larger than the"),
        ("num_hidden_layers", 10**9, "larger than the"),
        ("max_position_embeddings", 10**11, "larger than the"),
        ("hidden_act", ["gelu"], "field 'hidden_act'"),
        ("model_type", {"a": 1}, "cannot be loaded"),
    ],
)
def test_a_hostile_config_is_refused(folder, key, value, words):
    """Before the memory that it asks for is taken."""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {key: value}))
    check_refused(folder, words)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_weights_without_rights_are_not_called_missing(folder):
    (folder / "model.safetensors").chmod(0)
    check_refused(folder, "Permission denied")


@pytest.mark.parametrize("text", ["", "[]", DEEP, '{"model": 3}', '{"version": "1.0"}'])
def test_a_hostile_tokenizer_is_refused(folder, text):
    (folder / "tokenizer_config.json").unlink()
    (folder / "tokenizer.json").write_text(text)
    check_refused(folder, "cannot be loaded")


def test_json_without_end_is_refused(tmp_path):
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    with pytest.raises(UserError, match=r"cannot be read as JSON \(it is not a file"):
        read_json(tmp_path / "zero.json")
    with (tmp_path / "large.json").open("wb") as file:
        file.truncate(MOST_JSON_BYTES + 1)
    with pytest.raises(UserError, match="it has more than"):
        read_json(tmp_path / "large.json")
