"""The papers' numbers: each line agrees with its own average and with the docs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cotbert_core.encoder.pooling_config import PoolingConfig
from pipelines.evaluating.published import (
    BERT,
    ROBERTA,
    SIMCSE_SUPERVISED,
    STS,
    STS_COLUMNS,
    SUPERVISED,
    TRANSFER,
    TRANSFER_COLUMNS,
    UNSUPERVISED,
    beside,
    published_backbone,
    published_method,
)
from pipelines.recipes import RECIPES, settings_for

PAPERS = (Path(__file__).resolve().parents[3] / "docs" / "papers.md").read_text(encoding="utf-8")


def test_every_line_is_its_own_and_agrees_with_its_average():
    for rows in (STS, TRANSFER):
        assert len({(r.method, r.backbone, r.kind) for r in rows}) == len(rows)
        assert len({r.scores for r in rows}) == len(rows)
        assert {len(r.scores) for r in rows} == {len(STS_COLUMNS)} == {len(TRANSFER_COLUMNS)}
        # The averages of the papers are of unrounded scores, PromptBERT's of ten seeds.
        averages = [r.average for r in rows]
        assert [np.mean(r.scores) for r in rows] == pytest.approx(averages, abs=0.02)


def test_the_docs_have_the_averages_of_our_methods():
    ours = [row for row in STS if row.trained_by is not None]
    methods = {settings_for(recipe, None, [], {}).method.name for recipe in RECIPES}
    assert {row.trained_by for row in ours} <= {SIMCSE_SUPERVISED} | methods
    assert [row.method for row in ours if f"{row.average:.2f}" not in PAPERS] == []


def test_rows_are_of_the_same_encoder():
    assert {row.backbone for row in beside(STS, {ROBERTA})} == {ROBERTA}
    assert {row.backbone for row in beside(STS, {BERT, ROBERTA})} == {BERT, ROBERTA}
    unknown = beside(STS, {None})
    assert {row.backbone for row in unknown} == {BERT}
    assert len(unknown) < len(beside(STS, {BERT}))
    assert ("CoT-BERT", UNSUPERVISED) in {(row.method, row.kind) for row in unknown}


@pytest.mark.parametrize(
    ("kind", "layers", "name", "known"),
    [
        ("bert", 12, "google-bert/bert-base-uncased", BERT),
        ("bert", 12, "models/bert-base-uncased", BERT),
        ("bert", 12, "BAAI/bge-base-en-v1.5", None),
        ("bert", 12, "bert-base-multilingual-uncased", None),
        ("roberta", 12, "roberta-base", ROBERTA),
        ("roberta", 6, "distilroberta-base", None),
    ],
)
def test_an_encoder_of_the_same_size_is_not_the_papers(kind, layers, name, known):
    config = SimpleNamespace(model_type=kind, hidden_size=768, num_hidden_layers=layers)
    assert published_backbone(SimpleNamespace(model=SimpleNamespace(config=config)), name) == known


def test_supervised_simcse_has_rows_of_its_own():
    for settings, kind in ((None, UNSUPERVISED), ({"method.triples": True}, SUPERVISED)):
        method = published_method(PoolingConfig("cls", method="simcse", settings=settings))
        (row,) = (r for r in STS if (r.trained_by, r.backbone) == (method, BERT))
        assert (row.method, row.kind) == ("SimCSE", kind)
