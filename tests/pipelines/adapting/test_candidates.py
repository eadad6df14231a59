"""The candidates of an adaptation: those that an encoder supports."""

from __future__ import annotations

import shutil

import pytest
import torch
from document_corpus import write_document_corpus
from transformers import AutoTokenizer, DistilBertConfig, DistilBertModel

from cotbert_core.errors import UserError
from cotbert_core.files import read_json, write_json
from pipelines.adapting.candidates import candidates, supported
from pipelines.adapting.options import AdaptOptions
from pipelines.storage.corpus import Corpus


@pytest.fixture
def distilled(bert_folder, tmp_path):
    """A family whose head for masked language modelling is not supported."""
    tokenizer = AutoTokenizer.from_pretrained(bert_folder)
    torch.manual_seed(0)
    config = DistilBertConfig(
        vocab_size=len(tokenizer), dim=32, n_layers=1, n_heads=2, hidden_dim=32
    )
    DistilBertModel(config).save_pretrained(tmp_path / "distilled")
    tokenizer.save_pretrained(tmp_path / "distilled")
    return str(tmp_path / "distilled")


def checked(encoder, tmp_path, **options):
    parts = [(document, place) for document in range(8) for place in range(3)]
    corpus = Corpus.open(write_document_corpus(tmp_path / "corpus", encoder, parts, max_length=64))
    given = AdaptOptions(("docs.txt",), encoder, documents="row", **{"batch_size": 4, **options})
    settings = candidates(given, encoder, "mean")
    return supported(settings, corpus, named=bool(given.candidates)), settings


def test_candidates_that_an_encoder_does_not_support_are_left_out(distilled, tmp_path):
    (usable, notes), tried = checked(distilled, tmp_path)
    left_out = {"denosent-both-rest", "denosent-both-neighbour"}
    assert usable.keys() == tried.keys() - left_out
    assert usable == {name: tried[name] for name in usable}
    said = [note for note in notes if "is left out" in note]
    assert [note.split()[1] for note in said] == sorted(left_out, reverse=True)
    assert all("family 'distilbert', whose masked-language-model head" in note for note in said)


def test_of_a_supported_encoder_none_is_left_out(bert_folder, tmp_path):
    (usable, notes), tried = checked(bert_folder, tmp_path)
    assert usable == tried
    assert not [note for note in notes if "left out" in note]
    assert len(set(notes)) == len(notes)


def test_a_candidate_that_was_named_is_refused(distilled, tmp_path):
    with pytest.raises(UserError, match="family 'distilbert'"):
        checked(distilled, tmp_path, candidates=("simcse", "denosent-both-rest"))


def test_a_fault_of_all_candidates_is_refused(distilled, tmp_path):
    with pytest.raises(UserError, match="batch_size is 4096"):
        checked(distilled, tmp_path, batch_size=4096)


def test_no_setting_is_advised_since_adapt_takes_none(bert_folder, tmp_path):
    folder = tmp_path / "short"
    shutil.copytree(bert_folder, folder)
    rates = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
    write_json(folder / "config.json", read_json(folder / "config.json") | rates)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 48})
    write_json(folder / "modules.json", [{"type": "models.Transformer", "path": ""}])
    (_, notes), _ = checked(str(folder), tmp_path)
    assert any(note.endswith("the trained encoder reads 46 tokens of a text") for note in notes)
    assert any(note.endswith("method simcse has little to learn") for note in notes)
    assert not any("--set" in note for note in notes)
