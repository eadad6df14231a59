"""The papers' numbers: each line agrees with its own average and with the docs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipelines.evaluating.published import (
    BERT,
    ROBERTA,
    STS,
    STS_COLUMNS,
    TRANSFER,
    TRANSFER_COLUMNS,
    UNSUPERVISED,
    beside,
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
    assert {row.trained_by for row in ours} <= {
        settings_for(recipe, None, [], {}).method.name for recipe in RECIPES
    }
    assert [row.method for row in ours if f"{row.average:.2f}" not in PAPERS] == []


def test_rows_are_of_the_same_encoder():
    assert {row.backbone for row in beside(STS, {ROBERTA})} == {ROBERTA}
    assert {row.backbone for row in beside(STS, {BERT, ROBERTA})} == {BERT, ROBERTA}
    unknown = beside(STS, {None})
    assert {row.backbone for row in unknown} == {BERT}
    assert len(unknown) < len(beside(STS, {BERT}))
    assert ("CoT-BERT", UNSUPERVISED) in {(row.method, row.kind) for row in unknown}
