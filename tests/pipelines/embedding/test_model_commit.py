"""The commit of a hub's model, as the cache of its files tells it."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

from pipelines.embedding.manifest import model_commit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def encoder(name):
    return SimpleNamespace(backbone=SimpleNamespace(name=name))


def test_a_hub_name_has_a_commit_and_a_folder_has_none(tmp_path, bert_folder, monkeypatch):
    there = tmp_path / "models--someone--bert"
    (there / "refs").mkdir(parents=True)
    (there / "refs" / "main").write_text(COMMIT)
    (there / "snapshots" / COMMIT).mkdir(parents=True)
    shutil.copy(f"{bert_folder}/config.json", there / "snapshots" / COMMIT)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert model_commit(encoder("someone/bert")) == COMMIT
    assert model_commit(encoder("someone/else")) is None
    assert model_commit(encoder(bert_folder)) is None
