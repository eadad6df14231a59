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


@pytest.mark.parametrize(
    "row", [*STS, *TRANSFER], ids=lambda r: f"{r.method} {r.backbone} {r.kind}"
)
def test_a_line_agrees_with_its_average(row):
    assert len(row.scores) == 7
    # The averages of the papers are of unrounded scores, PromptBERT's of ten seeds.
    assert np.mean(row.scores) == pytest.approx(row.average, abs=0.02)


def test_lines_are_distinct_and_in_the_papers_order_of_tasks():
    for rows in (STS, TRANSFER):
        assert len({(r.method, r.backbone, r.kind) for r in rows}) == len(rows)
        assert len({r.scores for r in rows}) == len(rows)
    assert STS_COLUMNS == ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R")
    assert TRANSFER_COLUMNS == ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")


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
