"""What is said of a training beside its baseline."""

from __future__ import annotations

import re

from pipelines.recipes import settings_for
from pipelines.training.baseline_sentence import ADVICE, LONGER, baseline_sentence

WORSE = {
    "dev_spearman": 64.4,
    "dev": "built-in pairs",
    "baseline": "its own mean pooling",
    "baseline_spearman": 73.9,
}


def test_a_result_below_its_baseline_is_a_warning_with_what_to_try():
    message = baseline_sentence(WORSE)
    assert message == (
        "warning: the trained encoder scores 64.40 on dev (built-in pairs): 9.50 worse than the "
        f"untouched encoder, which scores 73.90 by its own mean pooling. {ADVICE}"
    )
    above = baseline_sentence({**WORSE, "dev_spearman": 75.1, "dev": "STS-B dev"})
    assert above == (
        "The trained encoder scores 75.10 on dev (STS-B dev): 1.20 better than the untouched "
        "encoder, which scores 73.90 by its own mean pooling. Dev scores chose the step, so some "
        "of the gain may be chance."
    )
    share = {"dev_mlm_accuracy": 0.977, "baseline_mlm_accuracy": 0.325, "dev": "held-out rows"}
    assert baseline_sentence({**share, "baseline": "no training"}) == (
        "The trained encoder scores 0.98 % on dev (held-out rows): 0.65 points better than the "
        "untouched encoder, which scores 0.33 % by no training."
    )
    equal = baseline_sentence({**WORSE, "dev_spearman": 73.9}, "the best trial")
    assert equal.startswith("The best trial scores 73.90 on dev (built-in pairs): the same as the")
    read_well = baseline_sentence({**WORSE, "dev_spearman_before": 73.2})
    assert read_well.endswith(f"its own mean pooling. {LONGER}.")
    assert baseline_sentence({**WORSE, "dev_spearman_before": 60.2}) == message
    for method, reading, readout in (
        ("simcse", "its own mean pooling", "mean"),
        ("simcse", "its own [CLS] pooling", "cls"),
    ):
        plain = baseline_sentence({**WORSE, "method": method, "baseline": reading})
        assert plain.endswith(f"of the untouched encoder (--set method.readout={readout}).")
    for method in ("cot-bert", "denosent"):  # which read [MASK]
        assert baseline_sentence({**WORSE, "method": method}) == message
    undefined = baseline_sentence({**WORSE, "baseline_spearman": float("nan")})
    assert "not to be compared with" in undefined
    assert "warning" not in equal + undefined + above


def test_what_to_try_can_be_set():
    for name in re.findall(r"readout=(\w+) or (\w+)", ADVICE)[0]:
        changed = settings_for("simcse-base", None, [f"method.readout={name}"], {})
        assert changed.method.readout == name
    assert "optimizer.learning_rate" in ADVICE
    assert settings_for("simcse-base", None, ["optimizer.learning_rate=1e-6"], {})
