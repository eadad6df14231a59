"""The proxy study's tables, on tiny encoders."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import permutation_test, spearmanr

from benchmarks import label_free_score
from benchmarks.label_free_score import agreement, read_reviews
from cotbert_core.errors import UserError

sys.path.append(str(Path(__file__).parents[1] / "pipelines"))
from tiny_corpus import write_held_out

WORDS = ("man", "dog", "penguin", "woman", "stage", "field", "price", "oil", "song", "line")


@pytest.fixture
def reviews(tmp_path):
    rows = [{"text": f"{WORDS[n % 10]}\n{WORDS[n % 7]}", "label": str(n % 2)} for n in range(60)]
    path = tmp_path / "reviews.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_an_order_agrees_with_itself_and_not_with_its_reverse(monkeypatch):
    monkeypatch.setattr(label_free_score, "RESAMPLES", 100)
    scores = np.arange(7.0)
    same, ends, p = agreement(scores, scores)
    assert (same, ends) == ("1.00", "1.00 to 1.00")
    assert float(p) < 0.001
    assert agreement(scores, -scores)[0] == "-1.00"
    draw = np.random.default_rng(0)
    proxy, label = draw.normal(size=5), draw.integers(0, 3, 5).astype(float)
    slow = permutation_test(
        (proxy,), lambda one: spearmanr(one, label).statistic, permutation_type="pairings"
    )
    assert 0.05 < slow.pvalue < 0.95, "premise"
    assert agreement(proxy, label)[2] == f"{slow.pvalue:.4f}"


@pytest.mark.real
def test_every_encoder_has_a_row_and_every_label_a_correlation(
    tmp_path, reviews, bert_folder, capsys
):
    queries = [f"{a} {b}" for a in WORDS[:5] for b in WORDS[5:]]
    corpus = write_held_out(tmp_path / "corpus", queries, [f"oil {q} song" for q in queries])
    models = [f"{bert_folder},readout={name}" for name in ("mean", "cls", "static")]
    words = [str(corpus), "--only", "--sentiment", str(reviews), "--reviews", "40"]
    words += ["--modules", "json,email", "--docstrings", "20"]

    def run(*chosen):
        label_free_score.run(label_free_score.parser().parse_intermixed_args([*words, *chosen]))

    run(*models)
    shown = capsys.readouterr().out
    for name in ("mean", "[CLS]", "static"):
        assert shown.count(f"{Path(bert_folder).name} {name}") == 1
    assert "found first and sentiment" in shown
    assert "MRR@10 and sentiment" in shown
    assert "found first and same file" in shown
    found = read_reviews(reviews, 40)
    assert [len(texts) for texts in found.values()] == [20, 20]
    assert not any("\n" in text for texts in found.values() for text in texts)
    with pytest.raises(UserError, match="2 models are given: an order needs at least 3"):
        run(*models[:2])
