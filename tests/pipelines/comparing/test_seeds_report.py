"""The page of several seeds of one run."""

from __future__ import annotations

import math
import re

import pytest

from pipelines.comparing.seeds_report import mean_sentence, write_seeds_report

RUN = {"dev_spearman_before": 31.0, "best_step": 1250, "steps": 2000, "loss": 0.125}
SCORES = {"mean": 71.0, "spread": 1.41, "min": 70.0, "max": 72.0}
RESULT = {
    "method": "simcse",
    "encoder": "some/encoder",
    "seeds": [0, 7],
    **{f"dev_spearman_{name}": score for name, score in SCORES.items()},
    "dev": "built-in pairs",
    "baseline": "mean pooling",
    "baseline_spearman": 60.0,
    "runs": [{**RUN, "seed": 0, "dev_spearman": 70.0}, {**RUN, "seed": 7, "dev_spearman": 72.0}],
    "mlflow_run_id": "abc",
}


@pytest.mark.drawn
@pytest.mark.parametrize("before", [(30.0, 32.0), (None, None)])
def test_the_page_has_the_mean_and_every_seed(tmp_path, before):
    both = zip(RESULT["runs"], before, strict=True)
    runs = [{**run, "dev_spearman_before": score} for run, score in both]
    result = {**RESULT, "runs": runs}
    write_seeds_report(tmp_path / "report.html", result, {"batch_size": 64})
    page = (tmp_path / "report.html").read_text()
    assert mean_sentence(result) in page
    assert "the mean of 2 seeds scores 71.00" in page.lower()
    for text in ("<td>7</td>", "<td>72.00</td>", "<td>1,250</td>", "<td>seed-7</td>"):
        assert text in page
    for title in ("simcse: 70.00", "simcse: 72.00", "untouched: mean pooling: 60.00"):
        assert f"<title>{title}" in page
    assert ("<title>simcse: 31.00 without training</title>" in page) is (None not in before)
    assert "<td>batch_size</td><td>64</td>" in page
    assert "None" not in page
    assert "null" not in page


def test_scores_of_equal_vectors_are_undefined(tmp_path):
    runs = [{**run, "dev_spearman": math.nan} for run in RESULT["runs"]]
    spread = dict.fromkeys((f"dev_spearman_{name}" for name in SCORES), math.nan)
    write_seeds_report(tmp_path / "report.html", {**RESULT, "runs": runs, **spread}, {})
    page = (tmp_path / "report.html").read_text()
    assert page.count("<td>undefined</td>") == 6
    assert "nan" not in re.sub(r"<[^>]*>", " ", page)
