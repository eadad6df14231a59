"""The graded pairs by which the best step of a run is chosen, and what they are called."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cotbert_core.evaluation import Pairs, load_dev, read_pairs
from cotbert_core.settings import TrainSettings

BUILT_IN_NAME = "built-in pairs"
BUILT_IN_PAIRS = Path(__file__).parents[1] / "data" / "pairs.tsv"
# What TrainSettings.dev scores in a SentEval folder.
DEV_TASKS = {"sts-b": ("STS-B",), "sts-b+sick-r": ("STS-B", "SICK-R")}
_TASKS = {task for tasks in DEV_TASKS.values() for task in tasks}


def dev_pairs(senteval: Path | None, pairs: Path | None) -> Pairs:
    """STS-B's dev file, a file of one's own, or the pairs that come with this package."""
    if senteval is not None:
        return load_dev(senteval)
    return read_pairs(pairs or BUILT_IN_PAIRS, split="dev")


def dev_sets(
    settings: TrainSettings, senteval: Path | None, pairs: Path | None
) -> dict[str, Pairs]:
    """The dev sets of a run by name; its dev score is the mean over them."""
    if senteval is not None:
        return {task: load_dev(senteval, task) for task in DEV_TASKS[settings.dev]}
    return {pairs_name(pairs): dev_pairs(None, pairs)}


def pairs_name(pairs: Path | None) -> str:
    """What a file of pairs is called; None: those that come with this package."""
    return BUILT_IN_NAME if pairs is None else pairs.name


def dev_name(dev: Mapping[str, Pairs]) -> str:
    """What a dev score was measured on: built-in pairs, a file's name, STS-B dev, STS-B + SICK-R
    dev."""
    return " + ".join(dev) + (" dev" if dev.keys() <= _TASKS else "")


def with_pairs(settings: Mapping[str, Any], dev: Mapping[str, Pairs]) -> dict[str, Any]:
    """Flat settings as they are shown and recorded: `dev` names the pairs that were used, since
    the setting itself has a meaning in a SentEval folder alone."""
    return {**settings, "dev": dev_name(dev)}


def dev_digest(dev: Mapping[str, Pairs]) -> str:
    """Return a digest of the pairs that choose the best step: other pairs are another job.

    Pairs outside a SentEval folder are the same ones under any name.
    """
    if len(dev) == 1 and not dev.keys() <= _TASKS:
        dev = {"pairs": next(iter(dev.values()))}
    text = json.dumps([[n, p.left, p.right, p.gold.tolist()] for n, p in sorted(dev.items())])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
