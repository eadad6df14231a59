"""Manifests from elsewhere: what is no number, or none that can be, is refused in one sentence."""

from __future__ import annotations

import json

import numpy as np
import pytest
from embeddings_folders import write_folder
from tiny_corpus import write_corpus

from cotbert_core.errors import UserError
from pipelines.searching.embeddings import Embeddings
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
}


def cases(values):
    return [(key, value) for key, given in values.items() for value in given]


@pytest.mark.parametrize(("key", "value"), cases(CORPUS))
def test_a_hostile_manifest_of_a_corpus_is_refused(tmp_path, bert_folder, key, value):
    folder = write_corpus(tmp_path / "c", bert_folder, ["a text", "another text"])
    assert len(Corpus.open(folder)) == 2
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {key: value}))
    with pytest.raises(UserError, match=f"gives {key} as .* and it must be .*: copy"):
        Corpus.open(folder)


@pytest.mark.parametrize(("key", "value"), cases(EMBEDDINGS))
def test_a_hostile_manifest_of_embeddings_is_refused(tmp_path, key, value):
    vectors = np.eye(6, dtype=np.float32)
    folder = write_folder(tmp_path / "e", np.arange(6), vectors)
    assert len(Embeddings.open(folder)) == 6
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {key: value}))
    with pytest.raises(UserError, match=f"gives {key} as .* and it must be .*: copy"):
        Embeddings.open(folder)


@pytest.mark.parametrize("text", ["", "[]", "3", "null", DEEP, "{", '{"rows": 3'])
def test_a_manifest_that_is_none_is_refused(tmp_path, bert_folder, text):
    corpus = write_corpus(tmp_path / "c", bert_folder, ["a text"])
    vectors = write_folder(tmp_path / "e", np.arange(6), np.eye(6, dtype=np.float32))
    for folder, opened in ((corpus, Corpus), (vectors, Embeddings)):
        (folder / "manifest.json").write_text(text)
        with pytest.raises(
            UserError, match=r"is not the manifest|not a prepared corpus|cannot be read as JSON"
        ):
            opened.open(folder)
