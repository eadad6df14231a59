"""Packing a corpus, and new encoders: without Ray, on corpora written by hand."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tiny_corpus import write_corpus

from cotbert_core.encoder.backbone import load_backbone, load_tokenizer
from cotbert_core.encoder.mlm import load_mlm_head
from cotbert_core.errors import UserError
from cotbert_core.files import read_json
from cotbert_core.settings import override
from pipelines.cli import main
from pipelines.pretrain import pretrain
from pipelines.pretraining import packed_corpus as module
from pipelines.pretraining.new_encoder import NewEncoder, make_encoder, parse_size
from pipelines.pretraining.packed_corpus import Packing, packed_corpus
from pipelines.recipes import RECIPES
from pipelines.storage.corpus import Corpus
from pipelines.training.data import open_data

WORDS = (
    *("man", "woman", "dogs", "children", "penguin", "guitar"),
    *("stage", "field", "ice", "oil", "price", "frogs"),
)


def texts(count, seed=0):
    random = np.random.default_rng(seed)
    lines = [" ".join(random.choice(WORDS, random.integers(2, 9))) for _ in range(count)]
    return [f"{line} {number}" for number, line in enumerate(lines)]


@pytest.fixture
def plain(tmp_path, bert_folder):
    every = texts(120)
    return Corpus.open(write_corpus(tmp_path / "plain", bert_folder, every[:50], every[50:]))


@pytest.fixture
def in_documents(tmp_path, bert_folder):
    """The rows of 30 documents, in no order, as a shuffled corpus has them."""
    every = texts(120)
    folder = write_corpus(
        tmp_path / "documents", bert_folder, every[:50], every[50:], documents={"by": "row"}
    )
    order, start = np.random.default_rng(1).permutation(120), 0
    for path in sorted(folder.glob("data/part-*.parquet")):
        table = pq.read_table(path)
        own = order[start : start + len(table)]
        start += len(table)
        table = table.append_column("document", pa.array(own // 4 + 10**12))
        table = table.append_column("position", pa.array(own % 4, pa.int32()))
        pq.write_table(table, path)
    return Corpus.open(folder)


def packing(corpus, bert_folder, capacity=30, **more):
    return Packing(corpus, capacity, bert_folder, load_tokenizer(bert_folder).hash, **more)


def lists(ragged):
    return [list(map(int, row)) for row in ragged]


def slow_rows(sentences, capacity):
    """(document, ids) after one another, packed by a loop."""
    rows, last = [], None
    for document, ids in sentences:
        ids = list(ids)[:capacity]
        if not rows or document != last or len(rows[-1]) + len(ids) > capacity:
            rows.append([])
        rows[-1] += ids
        last = document
    return rows


def test_rows_are_packed_part_by_part(plain, bert_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PART_ROWS", 10)
    packed, dev = packed_corpus(packing(plain, bert_folder), tmp_path / "packed")
    ids = list(plain.sentences())
    expected = slow_rows([(int(n >= 50), row) for n, row in enumerate(ids)], 30)
    found = lists(packed.sentences()) + lists(dev)
    assert sorted(found) == sorted(expected)
    assert max(map(len, found)) <= 30
    assert len(packed.part_rows()) > 2
    assert len(packed) + len(dev) == len(expected)
    facts = packed.manifest["packed"]
    assert facts["sentences"] == 120
    assert facts["held_out"] == len(dev) == min(20, len(expected) // 5)
    assert facts["cut_sentences"] == 0
    settings = override(RECIPES["mlm-base"](), {"max_length": 30, "batch_size": 4})
    assert len(open_data(packed, None, settings)) == len(packed)


@pytest.mark.parametrize("sorted_rows", [1000, 50])
def test_a_row_has_sentences_of_one_document_in_their_order(
    in_documents, bert_folder, tmp_path, monkeypatch, sorted_rows
):
    monkeypatch.setattr(module, "SORTED_ROWS", sorted_rows)
    packed, dev = packed_corpus(packing(in_documents, bert_folder), tmp_path / "packed")
    table = in_documents.table(["input_ids", "document", "position"]).to_pylist()
    table.sort(key=lambda row: (row["document"], row["position"]))
    expected = slow_rows([(row["document"], row["input_ids"]) for row in table], 30)
    assert sorted(lists(packed.sentences()) + lists(dev)) == sorted(expected)
    assert packed.manifest["packed"]["by_documents"]
    shuffled = slow_rows([(0, row) for row in in_documents.sentences()], 30)
    assert sorted(shuffled) != sorted(expected), "premise: the order matters"


def test_the_held_out_rows_are_those_of_the_smallest_digests(
    plain, bert_folder, tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "MOST_DEV", 3)
    _, few = packed_corpus(packing(plain, bert_folder), tmp_path / "few")
    monkeypatch.setattr(module, "MOST_DEV", 200)
    packed, more = packed_corpus(packing(plain, bert_folder), tmp_path / "more")
    assert lists(few) == lists(more)[:3]
    assert not {tuple(row) for row in lists(more)} & {tuple(r) for r in lists(packed.sentences())}
    again, same = packed_corpus(packing(plain, bert_folder), tmp_path / "more")
    assert (again.digest, lists(same)) == (packed.digest, lists(more))
    with pytest.raises(UserError, match=r"holds rows of another corpus, tokenizer or"):
        packed_corpus(packing(plain, bert_folder, 20), tmp_path / "more")


def test_too_little_text_is_refused(tmp_path, bert_folder):
    corpus = Corpus.open(write_corpus(tmp_path / "one", bert_folder, ["A man walks."]))
    with pytest.raises(UserError, match="is packed into 1 rows of tokens, too few to train on"):
        packed_corpus(packing(corpus, bert_folder), tmp_path / "packed")
    assert not (tmp_path / "packed").exists()


def test_a_new_encoder_has_the_size_and_the_words_of_the_corpus(plain, tmp_path):
    new = NewEncoder(2, 128, 200)
    make_encoder(new, plain, tmp_path / "encoder", seed=0)
    backbone = load_backbone(str(tmp_path / "encoder"))
    config = backbone.model.config
    assert (config.num_hidden_layers, config.hidden_size) == (2, 128)
    assert (config.num_attention_heads, config.intermediate_size) == (2, 512)
    assert not load_mlm_head(backbone).fresh
    tokens = backbone.tokenizer.hf.tokenize("Penguin guitar")
    assert tokens == ["penguin", "guitar"]
    before = (tmp_path / "encoder" / "model.safetensors").read_bytes()
    make_encoder(new, plain, tmp_path / "encoder", seed=0)
    make_encoder(new, plain, tmp_path / "again", seed=0)
    for folder in ("encoder", "again"):
        assert (tmp_path / folder / "model.safetensors").read_bytes() == before
    with pytest.raises(UserError, match="holds a new encoder of another size, vocabulary, seed"):
        make_encoder(NewEncoder(2, 128, 300), plain, tmp_path / "encoder", seed=0)
    make_encoder(NewEncoder(1, 100, 200, cased=True), plain, tmp_path / "cased", seed=0)
    assert load_tokenizer(str(tmp_path / "cased")).hf.tokenize("Penguin") != ["penguin"]


def test_texts_are_tokenized_again_for_a_new_encoder(plain, bert_folder, tmp_path):
    make_encoder(NewEncoder(1, 32, 200), plain, tmp_path / "encoder", seed=0)
    tokenizer = load_tokenizer(str(tmp_path / "encoder"))
    again = Packing(
        plain, 30, str(tmp_path / "encoder"), tokenizer.hash, lambda t: tokenizer(t, 30)
    )
    packed, dev = packed_corpus(again, tmp_path / "packed")
    packed.check_tokenizer(str(tmp_path / "encoder"), tokenizer.hash, 30)
    words = tokenizer.hf.decode(dev[0]).split()
    assert set(words) & set(WORDS)


@pytest.mark.parametrize("text", ["4", "4x", "0x256", "4x256x1", "4X256", "-1x5"])
def test_a_size_that_is_none_is_refused(text):
    with pytest.raises(UserError, match=r"give LAYERSxHIDDEN, e\.g\. 4x256"):
        parse_size(text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method.packed_length": 200}, "packed_length is 200 and the encoder .* at most 128"),
        ({"encoder": "roberta"}, "was tokenized for"),
    ],
)
def test_mistakes_are_found_before_anything_starts(
    plain, bert_folder, roberta_folder, tmp_path, changes, message
):
    if "encoder" in changes:
        changes = {"encoder": roberta_folder}
    settings = override(RECIPES["mlm-base"](), {"encoder": bert_folder, **changes})
    with pytest.raises(UserError, match=message):
        pretrain(settings, plain, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_other_methods_and_packed_corpora_are_refused(plain, bert_folder, tmp_path):
    packed, _ = packed_corpus(packing(plain, bert_folder), tmp_path / "packed")
    settings = override(RECIPES["mlm-base"](), {"encoder": bert_folder})
    with pytest.raises(UserError, match="is packed already and has no texts"):
        pretrain(settings, packed, tmp_path / "out")
    with pytest.raises(UserError, match="pretraining needs a recipe of method mlm"):
        pretrain(RECIPES["simcse-base"](), plain, tmp_path / "out")
    from pipelines.training.inputs import check_inputs

    few = override(settings, {"batch_size": 4, "max_length": 30})
    assert check_inputs(few, packed)
    with pytest.raises(UserError, match="which is not packed into rows: train mlm by"):
        check_inputs(few, plain)
    assert read_json(packed.path / "manifest.json")["source"] == plain.manifest["source"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--new", "4"], "new is '4': give LAYERSxHIDDEN, e.g. 4x256"),
        (["--new", "2x32", "--encoder", "x"], "--new and --encoder are both given"),
        (["--new", "2x32", "--vocabulary", "5"], "vocabulary is 5: give at least 200 tokens"),
        (["--cased"], "--vocabulary and --cased need a new encoder: give --new too"),
        (["--set", "method.mask_share=1.5"], "method.mask_share is 1.5"),
    ],
)
def test_mistakes_of_the_command_end_with_status_2(plain, tmp_path, capsys, flags, message):
    words = ["pretrain", "mlm-base", "--corpus", str(plain.path), "--output", str(tmp_path / "o")]
    assert main([*words, *flags]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "o").exists()
