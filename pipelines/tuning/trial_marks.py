"""The marks of trials, means and baselines in the plots of a sweep, and their legend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from pipelines.reports.colours import BLUE, GREY, INK, ORANGE, PAGE
from pipelines.reports.plots import legend
from pipelines.tuning.axes import Scale, range_text
from pipelines.tuning.sampled_trials import TrialRow, score
from pipelines.tuning.state import FAILED, FINISHED, STOPPED

KINDS: dict[str, dict[str, Any]] = {
    FINISHED: {"marker": "o", "mfc": BLUE, "mec": PAGE, "ms": 7, "mew": 0.6},
    STOPPED: {"marker": "o", "mfc": "none", "mec": BLUE, "ms": 6, "mew": 1.3},
    "unfinished": {"marker": "s", "mfc": "none", "mec": GREY, "ms": 6, "mew": 1.3},
    "best": {"marker": "o", "mfc": ORANGE, "mec": PAGE, "ms": 9, "mew": 0.6},
    "none": {"marker": "|", "mfc": INK, "mec": INK, "ms": 9, "mew": 1.6},
}
BASELINE: dict[str, Any] = {"color": INK, "ls": "--", "lw": 1.2}
BEFORE: dict[str, Any] = {"color": GREY, "lw": 1.0}
MEAN: dict[str, Any] = {"color": INK, "lw": 2.0}
NAMES = {FINISHED: "finished", STOPPED: "stopped early", "unfinished": "unfinished"}


def kind_of(trial: TrialRow, best: str | None) -> str:
    """Return the kind of mark of a trial: "best", its status, or "none" if it has no score."""
    if trial.get("status") == FAILED or score(trial) is None:
        return "none"
    if best is not None and trial.get("name") == best:
        return "best"
    return trial["status"] if trial.get("status") in NAMES else "unfinished"


def marks_legend(trials: Sequence[TrialRow], scale: Scale, means: bool) -> str:
    """Return the legend of all plots, with the number of trials of each kind of mark."""
    keys = [(name, KINDS[kind] | {"ls": ""}) for kind, name in _labels(trials, scale.best)]
    if means:
        keys.append(("mean of finished", MEAN))
    if scale.starts:
        below = "" if scale.shows_before else ", below the axis"
        keys.append((f"before training ({range_text(scale.starts)}{below})", BEFORE))
    if scale.baseline:
        keys.append((scale.baseline[0], BASELINE))
    return legend(keys)


def _labels(trials: Sequence[TrialRow], best: str | None) -> list[tuple[str, str]]:
    """Return (kind, label) of each kind of point in the plots."""
    kinds = Counter(kind_of(trial, best) for trial in trials)
    by_status = Counter(kind_of(trial, None) for trial in trials)
    failed = sum(trial.get("status") == FAILED for trial in trials)
    scoreless = kinds["none"] - failed
    lost = [f"{failed} failed"] * (failed > 0) + [f"{scoreless} without a score"] * (scoreless > 0)
    names = [("best", "best")] * (kinds["best"] > 0)
    names += [(k, f"{n} ({by_status[k]})") for k, n in NAMES.items() if by_status[k]]
    return names + [("none", ", ".join(lost))] * bool(lost)
