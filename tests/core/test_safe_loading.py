"""Only safetensors and JSON are opened: no pickle unless it is allowed, no code ever."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny_t5 import tiny_t5

from cotbert_core import SentenceEncoder, UserError
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.template_search.generation import load_generator


class Payload:
    """What a hostile pickle does when it is opened."""

    def __init__(self, mark: Path) -> None:
        self.mark = str(mark)

    def __reduce__(self):
        return os.mkdir, (self.mark,)


@pytest.fixture
def folder(bert_folder, tmp_path):
    return Path(shutil.copytree(bert_folder, tmp_path / "folder"))


@pytest.fixture
def pickled(folder):
    """A folder as older libraries wrote it: its weights in pytorch_model.bin alone."""
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return folder


def test_a_pickle_is_refused_unless_it_is_allowed(pickled, bert_folder, sentences, tmp_path):
    for load in (load_backbone, SentenceEncoder.from_pretrained):
        with pytest.raises(UserError, match=r"only as a pickle, .* --format folder --allow-pickle"):
            load(str(pickled))
    allowed = SentenceEncoder.from_pretrained(pickled, allow_pickle=True)
    expected = SentenceEncoder.from_pretrained(bert_folder).encode(sentences)
    assert np.array_equal(allowed.encode(sentences), expected)
    allowed.save_pretrained(tmp_path / "converted")
    assert not list((tmp_path / "converted").rglob("*.bin"))
    converted = SentenceEncoder.from_pretrained(tmp_path / "converted")
    assert np.array_equal(converted.encode(sentences), expected)


def test_an_allowed_pickle_still_runs_no_code(pickled, tmp_path):
    torch.save({"x": Payload(tmp_path / "ran")}, pickled / "pytorch_model.bin")
    with pytest.raises(UserError, match="cannot be loaded"):
        load_backbone(str(pickled), allow_pickle=True)
    assert not (tmp_path / "ran").exists()
    torch.load(pickled / "pytorch_model.bin", weights_only=False)
    assert (tmp_path / "ran").exists(), "premise: the pickle is hostile"


def test_a_pickle_beside_safetensors_is_not_opened(folder):
    (folder / "pytorch_model.bin").write_bytes(b"not opened")
    assert load_backbone(str(folder)).hidden_size == 32


@pytest.mark.parametrize("allow", [False, True])
def test_code_of_a_folder_is_not_run(folder, tmp_path, allow):
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoModel": "mine.M", "AutoConfig": "mine.C"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "mine.py").write_text(f"import os\nos.mkdir({str(tmp_path / 'ran')!r})\n")
    with pytest.raises(UserError, match="needs Python code from its own folder, which is never"):
        load_backbone(str(folder), allow_pickle=allow)
    assert not (tmp_path / "ran").exists()


def test_a_folder_without_weights_is_refused(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"cannot be loaded \(.*no file named model\.safetensors"):
        load_backbone(str(folder))


def test_a_template_generator_is_no_pickle_either(tmp_path):
    tiny_t5(tmp_path)
    assert load_generator(str(tmp_path)).tokenizer is not None, "premise"
    torch.save(load_file(tmp_path / "model.safetensors"), tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"no file named model\.safetensors"):
        load_generator(str(tmp_path))
