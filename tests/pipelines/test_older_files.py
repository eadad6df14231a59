"""Models, corpora, embeddings and settings as the version of November 2026 left them: they open.

That version wrote what MODEL, CORPUS, EMBEDDINGS and PLAIN_POOLING hold; weights and rows of today
lie beside them. Its Parquet parts are beside the manifest, not in data/.
"""

from __future__ import annotations

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sentence_transformers import SentenceTransformer
from tiny_corpus import write_corpus, write_held_out

from cotbert_core import TEMPLATES, SentenceEncoder
from cotbert_core.encoder.backbone import load_tokenizer
from cotbert_core.files import read_json, write_json
from cotbert_core.settings import TrainSettings, build, flatten, override
from pipelines.embedding.embed import read_embeddings
from pipelines.embedding.embeddings import Embeddings
from pipelines.reading import sources
from pipelines.storage.corpus import Corpus

TEXTS = ["A man is playing the guitar.", "Two dogs", "What do you want?"]

SETTINGS = """{
 "encoder": "bert-base-uncased",
 "templates.anchor": "cot-bert/anchor",
 "templates.positive": "cot-bert/positive",
 "templates.negative": "cot-bert/negative",
 "method.temperature": 0.05, "method.denoise": "pad", "method.pad_positions": "aligned",
 "method.freeze_bias": false, "method.name": "cot-bert", "method.extended": true,
 "optimizer.learning_rate": 3e-05, "optimizer.weight_decay": 0.0, "optimizer.clip": 1.0,
 "optimizer.warmup_steps": 0, "optimizer.schedule": "linear",
 "batch_size": 4, "chunk_size": null, "max_length": 12, "epochs": 1, "max_steps": 2,
 "shuffle_rows": null, "eval_every": 1, "dev": "sts-b", "dropout": null, "precision": "fp32",
 "attention": "auto", "workers": 1, "min_workers": null, "node_seconds": 180,
 "gpus_per_worker": null, "cpus_per_worker": null, "seed": 0
}"""
MODEL = """{
 "format": 1, "readout": "mask",
 "template": {
  "text": "The sentence of \\"[X]\\" means [MASK] , so it can be summarized as [MASK] .",
  "slot": "[X]", "mask": "[MASK]"
 },
 "max_length": null, "full_stop": true, "normalize": false, "denoise": "none",
 "pad_positions": "aligned", "head": null, "blank": false, "method": "cot-bert"
}"""
PLAIN_POOLING = """{
 "word_embedding_dimension": 32,
 "pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true
}"""
CORPUS = """{
 "format": 1, "columns": [], "rows_read": 3, "rows": 3, "added": 0, "changed": {}, "dropped": {},
 "sampled_out": 0, "truncated": 0, "tokens": 20, "encoder": "bert", "max_length": 12,
 "source": {
  "inputs": ["s.csv"], "files": 1, "files_ignored": 0, "files_without_rows": 0,
  "text_column": "text", "augmented_column": null, "negative_column": null, "sample": null,
  "near_duplicates": null, "exclude": [], "exclude_sentences": 0, "cleaning": {}
 },
 "versions": {"cotbert": "0.1.0", "pyarrow": "25.0.1"}
}"""
EMBEDDINGS = """{
 "format": 2, "rows": 3, "skipped": {}, "duplicates": 0, "truncated": 0, "split": 0,
 "dimension": 2, "dtype": "float32", "normalize": false, "model": "/models/run",
 "model_digest": "3b757b185828288b", "model_commit": null, "readout": "mask",
 "template": "The sentence of \\"[X]\\" means [MASK] .", "denoise": "none", "head": null,
 "max_tokens": 109, "on_long": "truncate", "backend": "torch", "model_source": "run",
 "id_column": null, "keep": [], "inputs": ["s.csv"], "files": 1, "files_ignored": 0,
 "versions": {"cotbert": "0.1.0", "pyarrow": "25.0.1"}
}"""


def test_a_model_gives_its_vectors_here_and_in_sentence_transformers(tmp_path, bert_folder):
    encoder = SentenceEncoder.from_pretrained(bert_folder, TEMPLATES["cot-bert/anchor"])
    folder = tmp_path / "model"
    encoder.save_pretrained(folder)
    shutil.rmtree(folder / "1_Pooling")
    (folder / "2_Pooling" / "config.json").write_text(PLAIN_POOLING)
    config = read_json(folder / "config.json")
    write_json(folder / "config.json", config | {"architectures": ["BertModel"]})
    kept = read_json(folder / "cotbert.json")
    older = json.loads(MODEL) | {"settings": json.loads(SETTINGS)}
    assert kept["template"] == older["template"]
    write_json(folder / "cotbert.json", older)
    opened = SentenceEncoder.from_pretrained(folder)
    expected = encoder.encode(TEXTS, precision="fp32")
    np.testing.assert_array_equal(opened.encode(TEXTS, precision="fp32"), expected)
    assert (opened.pooling.method, opened.pooling.settings["dev"]) == ("cot-bert", "sts-b")
    with_stops = [text if text[-1] in ".?" else f"{text}." for text in TEXTS]
    theirs = SentenceTransformer(str(folder), device="cpu").encode(with_stops)
    np.testing.assert_allclose(theirs, expected, atol=1e-5)


def test_the_settings_of_a_run_are_settings_of_today():
    older = json.loads(SETTINGS)
    settings = override(TrainSettings(encoder="other"), older)
    today = flatten(settings)
    former = {"chunk_size": "mini_batch_size", "shuffle_rows": "shuffle_buffer_rows"}
    assert {former.get(name, name): value for name, value in older.items()}.items() <= today.items()
    assert build(TrainSettings, settings.model_dump()) == settings


def test_a_corpus_is_read_and_trained_on(tmp_path, bert_folder):
    folder = write_corpus(tmp_path / "corpus", bert_folder, TEXTS[:2], TEXTS[2:])
    for part in (folder / "data").iterdir():  # where that version wrote them
        part.rename(folder / part.name)
    (folder / "data").rmdir()
    tokenizer = load_tokenizer(bert_folder)
    write_json(folder / "manifest.json", json.loads(CORPUS) | {"tokenizer_hash": tokenizer.hash})
    corpus = Corpus.open(folder)
    corpus.check_tokenizer(bert_folder, tokenizer.hash, 12)
    assert list(corpus.texts().values()) == TEXTS
    assert corpus.part_rows() == (2, 1)
    lists = [ids.tolist() for ids in corpus.batch().sentences]
    assert lists == [ids.tolist() for ids in tokenizer(TEXTS, 12)]
    write_held_out(folder, TEXTS, TEXTS)
    parts = sorted(str(path) for path in folder.glob("part-*"))
    assert sorted(sources.plan((str(folder),), "text").files) == parts


def test_embeddings_are_read_and_searched(tmp_path):
    vectors = np.arange(6, dtype=np.float32).reshape(3, 2) + 1
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 2)
    table = pa.table({"id": pa.array([5, 6, 9], pa.int64()), "embedding": column})
    pq.write_table(table, tmp_path / "part-000000.parquet")
    (tmp_path / "manifest.json").write_text(EMBEDDINGS)
    ids, found = read_embeddings(tmp_path)
    assert ids.tolist() == [5, 6, 9]
    np.testing.assert_array_equal(found, vectors)
    opened = Embeddings.open(tmp_path)
    assert not opened.text_ids
    (block,) = opened.blocks()
    np.testing.assert_array_equal(block.vectors, vectors)
