"""The options and the candidates of `cotbert adapt`."""

from __future__ import annotations

import pytest

from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.errors import UserError
from cotbert_core.methods import build_method
from cotbert_core.sentence_encoder import SentenceEncoder
from pipelines.adapting.candidates import CHECKS, candidates, check_every
from pipelines.adapting.job_record import params
from pipelines.adapting.options import CANDIDATES, AdaptOptions
from pipelines.cleaning.options import CleanOptions


def documents(**options):
    return AdaptOptions(("a.txt",), documents="row", **options)


def test_candidates_are_tried_in_one_order_each_once():
    named = documents(candidates=("simcse", "denosent-rest", "simcse"))
    assert named.chosen == ("denosent-rest", "simcse")
    assert documents(without=("denosent-rest",)).chosen == tuple(CANDIDATES)[1:]


@pytest.mark.parametrize(
    ("options", "by"),
    [
        ({}, "none"),
        ({"clean": CleanOptions(split="en")}, "row"),
        ({"inputs": ("a.txt", "docstrings:numpy")}, "row"),
        ({"clean": CleanOptions(split="en"), "documents": "none"}, "none"),
        ({"documents": "file"}, "file"),
    ],
)
def test_rows_that_are_not_split_are_sentences_without_a_document(options, by):
    made = AdaptOptions(**{"inputs": ("a.txt",), **options})
    assert made.read_as == by
    assert made.prepare_options().documents == (None if by == "none" else by)
    sentences = ("simcse", "cot-bert-template", "promptbert-template")
    assert made.chosen == (sentences if by == "none" else tuple(CANDIDATES))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"candidates": ("denosent",)}, "candidate 'denosent'"),
        ({"without": ("nothing",)}, "candidate 'nothing'"),
        ({"candidates": ("simcse",), "without": ("simcse",)}, "leave at least one candidate"),
        ({"max_steps": 0}, "^steps is 0: give at least 1"),
        ({"batch_size": 1}, "batch_size is 1"),
        ({"batch_size": 64, "workers": 3}, "batch_size is 64 and workers is 3: give a batch_size"),
        ({"hold_out": 1}, "hold_out is 1"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0"),
        ({"seed": -1}, "seed is -1: give at least 0"),
        ({"documents": "chapter"}, "documents is 'chapter'"),
        ({"candidates": ("denosent-rest",)}, "'denosent-rest' needs documents.*give --documents"),
        ({"query": "first"}, "query is 'first'"),
    ],
)
def test_a_wrong_option_is_named_with_its_rule(options, words):
    with pytest.raises(UserError, match=words):
        AdaptOptions(("a.txt",), **options)


def test_what_is_recorded_names_the_cleaning():
    options = AdaptOptions(("a.txt",), clean=CleanOptions(steps=("markup",), split="en"))
    cleaned = {"clean.steps": ("markup",), "clean.split": "en"}
    assert params(options).items() >= {**cleaned, "seed": 0, "inputs": "a.txt"}.items()
    assert not [name for name in params(AdaptOptions(("a.txt",))) if name.startswith("clean")]


def test_every_candidate_fits_the_encoder_and_has_the_same_budget(encoder_folder):
    options = documents(encoder=encoder_folder, max_steps=12, batch_size=4)
    found = candidates(options, encoder_folder, "mean")
    assert list(found) == list(CANDIDATES)
    budgets = {(s.max_steps, s.batch_size, s.seed, s.dev, s.eval_every) for s in found.values()}
    assert budgets == {(12, 4, 0, "own", 2)}
    for name, settings in found.items():
        build_method(load_backbone(encoder_folder), settings)
        assert settings.method.from_documents == name.endswith(("rest", "neighbour"))


def test_a_rest_is_no_longer_than_what_the_encoder_reads(tmp_path, bert_folder):
    folder = str(tmp_path / "short")
    SentenceEncoder.from_pretrained(bert_folder, max_length=20).save_pretrained(folder)
    options = documents(encoder=folder, candidates=("denosent-rest", "cot-bert-rest"))
    found = candidates(options, folder, "mean").values()
    assert [settings.method.rest_length for settings in found] == [20, 20]


def test_the_readout_that_scores_best_untouched_is_trained(bert_folder):
    options = documents(encoder=bert_folder, candidates=("denosent-rest", "simcse"))
    found = candidates(options, bert_folder, "cls").values()
    assert [settings.method.readout for settings in found] == ["cls", "cls"]


@pytest.mark.parametrize(("steps", "every"), [(1, 1), (6, 1), (7, 2), (90, 15)])
def test_weak_candidates_are_stopped_after_a_sixth(steps, every):
    assert check_every(steps) == every
    assert -(-steps // every) <= CHECKS
