"""Packing a corpus, and new encoders: without Ray, on corpora written by hand."""

from __future__ import annotations

import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tiny_corpus import write_corpus

from cotbert_core.encoder.backbone import load_backbone, load_tokenizer
from cotbert_core.encoder.mlm import load_mlm_head
from cotbert_core.errors import UserError
from cotbert_core.files import read_json, write_json
from cotbert_core.settings import override
from pipelines.cli import main
from pipelines.pretraining import packed_corpus as module
from pipelines.pretraining.new_encoder import NewEncoder, make_encoder, parse_size
from pipelines.pretraining.packed_corpus import Packing, packed_corpus
from pipelines.pretraining.pretrain import pretrain
from pipelines.recipes import RECIPES
from pipelines.storage.corpus import Corpus
from pipelines.training.data import open_data
from pipelines.training.inputs import check_inputs

WORDS = ("man", "woman", "dogs", "children", "penguin", "guitar", "stage", "field", "ice", "oil")


@pytest.fixture(scope="module")
def plain(tmp_path_factory, bert_folder):
    """120 texts of different lengths in two parts."""
    random, folder = np.random.default_rng(0), tmp_path_factory.mktemp("corpora") / "plain"
    texts = [f"{' '.join(random.choice(WORDS, random.integers(2, 9)))} {n}" for n in range(120)]
    return Corpus.open(write_corpus(folder, bert_folder, texts[:50], texts[50:]))


@pytest.fixture
def in_documents(tmp_path, plain, bert_folder):
    """The rows of 30 documents, in no order, as a shuffled corpus has them."""
    texts = list(plain.texts().values())
    folder = write_corpus(tmp_path / "documents", bert_folder, texts[:50], texts[50:],
                          documents={"by": "row"})  # fmt: skip
    order = np.random.default_rng(1).permutation(120)
    for path, own in zip(sorted(folder.glob("data/part-*")), np.split(order, [50]), strict=True):
        table = pq.read_table(path)
        table = table.append_column("document", pa.array(own // 4 + 10**12))
        table = table.append_column("position", pa.array(own % 4, pa.int32()))
        pq.write_table(table, path)
    return Corpus.open(folder)


def packing(corpus, bert_folder, capacity=30):
    return Packing(corpus, capacity, bert_folder, load_tokenizer(bert_folder).hash)


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
    return sorted(rows)


def test_rows_are_packed_in_the_order_of_the_corpus(plain, bert_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PART_ROWS", 10)
    packed, dev = packed_corpus(packing(plain, bert_folder), tmp_path / "packed")
    expected = slow_rows([(0, row) for row in plain.batch().sentences], 30)
    assert sorted(lists(packed.batch().sentences) + lists(dev)) == expected
    assert max(map(len, expected)) <= 30
    assert len(packed.part_rows()) > 2
    assert len(dev) == min(20, len(expected) // 5)
    facts = packed.manifest["packed"]
    assert (facts["sentences"], facts["held_out"], facts["cut_sentences"]) == (120, len(dev), 0)
    assert packed.manifest["source"] == plain.manifest["source"]
    settings = override(RECIPES["mlm-base"](), {"max_length": 30, "batch_size": 4})
    assert len(open_data(packed, None, settings)) == len(packed)


def test_a_row_has_sentences_of_one_document_in_their_order(in_documents, bert_folder, tmp_path):
    packed, dev = packed_corpus(packing(in_documents, bert_folder), tmp_path / "packed")
    table = in_documents.table(["input_ids", "document", "position"]).to_pylist()
    table.sort(key=lambda row: (row["document"], row["position"]))
    expected = slow_rows([(row["document"], row["input_ids"]) for row in table], 30)
    assert sorted(lists(packed.batch().sentences) + lists(dev)) == expected
    assert packed.manifest["packed"]["by_documents"]
    shuffled = slow_rows([(0, row) for row in in_documents.batch().sentences], 30)
    assert shuffled != expected, "premise: the order matters"


def test_the_held_out_rows_are_always_the_same_and_not_trained_on(
    plain, bert_folder, tmp_path, monkeypatch
):
    packed, held_out = packed_corpus(packing(plain, bert_folder), tmp_path / "packed")
    rows = [{tuple(row) for row in lists(some)} for some in (held_out, packed.batch().sentences)]
    assert not rows[0] & rows[1]
    # Packed again, and opened again.
    for name in ("again", "packed"):
        again, same = packed_corpus(packing(plain, bert_folder), tmp_path / name)
        assert (again.digest, lists(same)) == (packed.digest, lists(held_out))
    monkeypatch.setattr(module, "MOST_DEV", 3)
    _, few = packed_corpus(packing(plain, bert_folder), tmp_path / "few")
    assert len(few) == 3
    with pytest.raises(UserError, match=r"holds rows of another corpus, tokenizer or"):
        packed_corpus(packing(plain, bert_folder, 20), tmp_path / "packed")


def test_too_little_text_is_refused(tmp_path, bert_folder):
    corpus = Corpus.open(write_corpus(tmp_path / "one", bert_folder, ["A man walks."]))
    with pytest.raises(UserError, match="is packed into 1 row of tokens, too few to train on"):
        packed_corpus(packing(corpus, bert_folder), tmp_path / "packed")
    assert not (tmp_path / "packed").exists()


def test_a_new_encoder_has_the_size_and_the_words_of_the_corpus(plain, tmp_path):
    def made(name, new):
        make_encoder(new, plain, tmp_path / name, seed=0)
        return (tmp_path / name / "model.safetensors").read_bytes()

    before = made("encoder", NewEncoder(2, 128, 200))
    backbone = load_backbone(str(tmp_path / "encoder"))
    config = backbone.model.config
    assert (config.num_hidden_layers, config.hidden_size) == (2, 128)
    assert (config.num_attention_heads, config.intermediate_size) == (2, 512)
    assert not load_mlm_head(backbone).fresh
    assert backbone.tokenizer.hf.tokenize("Penguin guitar") == ["penguin", "guitar"]
    for name in ("encoder", "again"):
        assert made(name, NewEncoder(2, 128, 200)) == before
    with pytest.raises(UserError, match="holds a new encoder of another size, vocabulary, seed"):
        made("encoder", NewEncoder(2, 128, 300))
    made("cased", NewEncoder(1, 100, 200, cased=True))
    assert load_tokenizer(str(tmp_path / "cased")).hf.tokenize("Penguin") != ["penguin"]


def test_texts_are_tokenized_again_for_a_new_encoder(plain, tmp_path):
    name = str(tmp_path / "encoder")
    make_encoder(NewEncoder(1, 32, 200), plain, tmp_path / "encoder", seed=0)
    tokenizer = load_tokenizer(name)
    packed, dev = packed_corpus(Packing(plain, 8, name, tokenizer.hash, tokenizer), tmp_path / "p")
    packed.check_tokenizer(name, tokenizer.hash, 8)
    assert set(tokenizer.hf.decode(dev[0]).split()) & set(WORDS)
    assert packed.batch().sentences.lengths.max() == 8
    long = int((tokenizer(list(plain.texts().values()), None).lengths > 8).sum())
    assert packed.manifest["packed"]["cut_sentences"] == long > 0


@pytest.mark.parametrize("text", ["4", "4x", "0x256", "4x256x1", "4X256", "-1x5"])
def test_a_size_that_is_none_is_refused(text):
    with pytest.raises(UserError, match=r"give LAYERSxHIDDEN, e\.g\. 4x256"):
        parse_size(text)


def test_other_encoders_methods_and_packed_corpora_are_refused(
    plain, bert_folder, roberta_folder, tmp_path
):
    settings = override(RECIPES["mlm-base"](), {"encoder": bert_folder})
    packed, _ = packed_corpus(packing(plain, bert_folder), tmp_path / "packed")
    long = override(settings, {"method.packed_length": 200})
    folder = shutil.copytree(bert_folder, tmp_path / "maskless")
    facts = read_json(folder / "tokenizer_config.json")
    write_json(folder / "tokenizer_config.json", {**facts, "mask_token": None})
    left = tmp_path / "out" / "settings.json.partial"  # of a kill or a full disk
    left.parent.mkdir()
    left.touch()
    for given, corpus, message in (
        (long, plain, "packed_length is 200 and the encoder .* at most 128"),
        (override(settings, {"encoder": roberta_folder}), plain, "was tokenized for"),
        (
            override(settings, {"encoder": str(folder)}),
            plain,
            "has no mask token, which method",
        ),
        (settings, packed, "is packed already and has no texts"),
        (RECIPES["simcse-base"](), plain, "pretraining needs a recipe of method mlm"),
    ):
        with pytest.raises(UserError, match=message):
            pretrain(given, corpus, tmp_path / "out")
        assert [*left.parent.iterdir()] == [left], "the corpus is not packed either"
    few = override(settings, {"batch_size": 4, "max_length": 30})
    assert check_inputs(few, packed)
    with pytest.raises(UserError, match="which is not packed into rows: train mlm by"):
        check_inputs(few, plain)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--new", "4"], "new is '4': give LAYERSxHIDDEN, e.g. 4x256"),
        (["--new", "2x32", "--encoder", "x"], "--new and --encoder are both given"),
        (["--new", "2x32", "--vocabulary", "5"], "vocabulary is 5: give at least 200 tokens"),
        (["--new", "2x32", "--vocabulary", "0"], "vocabulary is 0: give at least 200 tokens"),
        (["--cased"], "--vocabulary and --cased need a new encoder: give --new too"),
        (["--set", "method.mask_share=1.5"], "method.mask_share is 1.5"),
    ],
)
def test_mistakes_of_the_command_end_with_status_2(plain, tmp_path, capsys, flags, message):
    words = ["pretrain", "mlm-base", "--corpus", str(plain.path), "--output", str(tmp_path / "o")]
    assert main([*words, *flags]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


def test_raw_text_is_prepared_at_the_length_of_a_row(
    bert_folder, tmp_path, own_store, monkeypatch, capsys
):
    monkeypatch.setenv("COTBERT_CACHE", str(tmp_path / "cache"))
    opened = []

    def pretrain(settings, corpus, *_, **__):
        opened.append(
            packed_corpus(packing(corpus, bert_folder, settings.max_length), tmp_path / "p")
        )
        raise UserError("enough")

    monkeypatch.setattr("pipelines.pretraining.pretrain.pretrain", pretrain)
    (tmp_path / "a.txt").write_text("".join(f"{n % 10} " * n + "\n" for n in range(1, 121)))
    words = ["pretrain", "mlm-base", "--corpus", "a.txt", "--encoder", bert_folder, "--output", "o"]
    assert main([*words, "--set", "method.packed_length=129"]) == 2
    assert "give --set method.packed_length=128 or less" in capsys.readouterr().err
    assert not (tmp_path / "cache").exists()
    more = ["--set", "method.packed_length=102", "--set", "max_length=30"]
    assert main([*words, *more]) == 2
    assert "max_length is 30 and has no effect, because rows are" in capsys.readouterr().err
    [(packed, _)] = opened
    assert packed.batch().sentences.lengths.max() == packed.manifest["max_length"] == 100
    assert packed.manifest["packed"]["cut_sentences"] == 20
