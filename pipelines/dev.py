"""The graded pairs by which the best step of a run is chosen."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from cotbert_core.evaluation import Pairs, load_dev, read_pairs
from cotbert_core.settings import TrainSettings

BUILT_IN_PAIRS = Path(__file__).parent / "data" / "pairs.tsv"
# What TrainSettings.dev scores in a SentEval folder.
DEV_TASKS = {"sts-b": ("STS-B",), "sts-b+sick-r": ("STS-B", "SICK-R")}


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
    return {"pairs": dev_pairs(None, pairs)}


def dev_digest(dev: Mapping[str, Pairs]) -> str:
    """Of the pairs and grades by which the best step is chosen: other ones are another job."""
    text = json.dumps([[n, p.left, p.right, p.gold.tolist()] for n, p in sorted(dev.items())])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
