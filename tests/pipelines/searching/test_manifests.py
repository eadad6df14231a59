"""Manifests from elsewhere: what is no number, or none that can be, is refused in one sentence."""

from __future__ import annotations

import json

import numpy as np
import pytest
from embeddings_folders import write_folder
from tiny_corpus import write_corpus

from cotbert_core.errors import UserError
from cotbert_core.files import read_json
from pipelines.embedding.embeddings import Embeddings
from pipelines.storage.corpus import Corpus

DEEP = "[" * 200_000 + "]" * 200_000
CORPUS = {
    "rows": ["3", -1, 1.5, None, 10**30, True, float("nan")],
    "max_length": ["32", 0, [], 10**12],
    "encoder": [3, None, {"a": 1}],
    "tokenizer_hash": [3, None],
    "columns": ["augmented", ["../a"], {"augmented": 1}, [["augmented"]], ["negative"], None],
}
EMBEDDINGS = {
    "rows": ["3", -1, None, 10**30],
    "dimension": ["6", 0, -4, 2.5, 10**12, None],
    "truncated_from": ["6", 0],
    "passage_words": ["60", 0],
    "model": [3, None, ["a"]],
    "template": [3, {"text": "[X] [MASK]"}],
    "readout": [[], 3],
    "model_digest": [3],
    "scale": ["x", 0, -1.0, [1, "2"], [1, float("nan")]],
    "vocabulary": [{"a": "b"}, 3],
}


def check_hostile(kind, folder, rows, cases):
    """The folder is opened as a whole, and refused with each of the values in its manifest."""
    assert len(kind.open(folder)) == rows
    manifest = read_json(folder / "manifest.json")
    for key, values in cases.items():
        for value in values:
            (folder / "manifest.json").write_text(json.dumps(manifest | {key: value}))
            with pytest.raises(UserError, match=rf"is not the manifest of .*: {key}\b.*\): give"):
                kind.open(folder)


def test_a_hostile_manifest_of_a_corpus_is_refused(tmp_path, bert_folder):
    folder = write_corpus(tmp_path / "c", bert_folder, ["a text", "another text"])
    check_hostile(Corpus, folder, 2, CORPUS)


def test_a_hostile_manifest_of_embeddings_is_refused(tmp_path):
    folder = write_folder(tmp_path / "e", np.arange(6), np.eye(6, dtype=np.float32))
    check_hostile(Embeddings, folder, 6, EMBEDDINGS)


def test_a_manifest_that_is_none_is_refused(tmp_path, bert_folder):
    corpus = write_corpus(tmp_path / "c", bert_folder, ["a text"])
    vectors = write_folder(tmp_path / "e", np.arange(6), np.eye(6, dtype=np.float32))
    message = "is not the manifest|not a prepared corpus|cannot be read as JSON"
    for text in ("", "[]", "3", "null", DEEP, "{", '{"rows": 3'):
        for folder, kind in ((corpus, Corpus), (vectors, Embeddings)):
            (folder / "manifest.json").write_text(text)
            with pytest.raises(UserError, match=message):
                kind.open(folder)
