"""The dev sets by which the best step of a run is chosen: their names and scores.

They are graded pairs, or with `dev: own` a corpus's held-out documents or the user's labelled
texts, or for masked language modelling held-out rows of tokens. Graded pairs given with documents
or labels are only scored at each dev check, to show forgetting.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from cotbert_core.evaluation.held_out import HeldOut, score_held_out, score_keywords
from cotbert_core.evaluation.labelled import Labelled, same_label
from cotbert_core.evaluation.pairs import (
    Encode,
    EncodeFunctions,
    Pairs,
    cosines,
    encode_distinct,
    read_pairs,
    spearman,
)
from cotbert_core.evaluation.sts import load_dev
from cotbert_core.methods import Method
from cotbert_core.methods.mlm import Mlm
from cotbert_core.settings import TrainSettings
from cotbert_core.templates.ragged_ids import Ragged
from pipelines.recording.dev_metric import (
    FOUND_FIRST,
    MLM_ACCURACY,
    SAME_LABEL,
    SPEARMAN,
    DevMetric,
)
from pipelines.recording.metric_names import (
    DEV_FOUND_FIRST,
    DEV_MLM_ACCURACY,
    DEV_MRR10,
    DEV_SAME_LABEL,
    DEV_SPEARMAN,
)
from pipelines.storage.held_out_file import read_held_out

BUILT_IN_NAME = "built-in pairs"
BUILT_IN_PAIRS = Path(__file__).parents[1] / "data" / "pairs.tsv"
OWN = "own"
OWN_NAME, LABELS_NAME, ROWS_NAME = "own documents", "labelled texts", "held-out rows"
# The tasks in a SentEval folder for each value of TrainSettings.dev.
DEV_TASKS = {"sts-b": ("STS-B",), "sts-b+sick-r": ("STS-B", "SICK-R"), OWN: ("STS-B",)}
_TASKS = {task for tasks in DEV_TASKS.values() for task in tasks}


@dataclass(frozen=True)
class MaskedRows:
    """Packed rows of token ids that no step trains on, scored by the method itself."""

    rows: Ragged

    def score(self, method: Method) -> dict[str, float]:
        """Return the score of a dev check by its name; each worker scores its share."""
        assert isinstance(method, Mlm)
        return {DEV_MLM_ACCURACY: method.accuracy(self.rows)}


DevSet = Pairs | HeldOut | Labelled | MaskedRows
DevSets = Mapping[str, DevSet]
_Kind = TypeVar("_Kind", HeldOut, Labelled, MaskedRows)


def dev_pairs(senteval: Path | None, pairs: Path | None) -> Pairs:
    """Return the pairs of STS-B's dev file, a given file, or this package."""
    if senteval is not None:
        return load_dev(senteval)
    return read_pairs(pairs or BUILT_IN_PAIRS, split="dev")


def graded_sets(settings: TrainSettings, senteval: Path | None, pairs: Path | None) -> DevSets:
    """Return the graded pairs of a run by name; with `dev: own` only given ones."""
    if senteval is not None:
        return {task: load_dev(senteval, task) for task in DEV_TASKS[settings.dev]}
    if settings.dev == OWN and pairs is None:
        return {}
    return {pairs_name(pairs): dev_pairs(None, pairs)}


def with_labelled(beside: DevSets, labelled: Labelled) -> DevSets:
    """Return labelled texts, together with graded pairs."""
    return {LABELS_NAME: labelled, **beside}


def with_own(beside: DevSets, corpus: Path) -> DevSets:
    """Return a corpus's held-out documents, together with graded pairs."""
    return {OWN_NAME: read_held_out(corpus, "dev"), **beside}


def pairs_name(pairs: Path | None) -> str:
    """Return the name of a file of pairs. pairs: None for the pairs in this package."""
    return BUILT_IN_NAME if pairs is None else pairs.name


def dev_metric(dev: DevSets) -> DevMetric:
    """Return the metric that chooses the step on these dev sets."""
    kinds = {MaskedRows: MLM_ACCURACY, Labelled: SAME_LABEL, HeldOut: FOUND_FIRST}
    metrics = (metric for kind, metric in kinds.items() if first_of(dev, kind) is not None)
    return next(metrics, SPEARMAN)


def graded(dev: DevSets) -> dict[str, Pairs]:
    """Return the dev sets that are graded pairs."""
    return {name: one for name, one in dev.items() if isinstance(one, Pairs)}


def first_of(dev: DevSets, kind: type[_Kind]) -> _Kind | None:
    """Return the dev set of this kind, if there is one."""
    return next((one for one in dev.values() if isinstance(one, kind)), None)


def score_dev(encode: EncodeFunctions, dev: DevSets) -> dict[str, float]:
    """Return the scores of a dev check by metric name.

    `dev_metric(dev).name`, which chooses the step, is the mean Spearman x 100 over graded pairs, or
    the share of the held-out documents' queries that find their target first, or of the labelled
    texts that are nearest to one of their label.
    """
    by_name = score_graded(encode.texts, graded(dev))
    each = {f"{DEV_SPEARMAN}.{name}": score for name, score in by_name.items()}
    held_out, labelled = first_of(dev, HeldOut), first_of(dev, Labelled)
    if labelled is not None:
        return {DEV_SAME_LABEL: 100 * float(same_label(encode.texts, labelled).mean()), **each}
    if held_out is not None:
        found = score_held_out(encode, held_out)
        return {DEV_FOUND_FIRST: found.found_first, DEV_MRR10: found.mrr10, **each}
    mean = sum(by_name.values()) / len(by_name)
    return {DEV_SPEARMAN: mean, **(each if len(each) > 1 else {})}


def score_graded(encode: Encode, dev: Mapping[str, Pairs]) -> dict[str, float]:
    """Return the Spearman x 100 of each set of graded pairs."""
    return {
        name: spearman(cosines(*encode_distinct(encode, pairs.left, pairs.right)), pairs.gold)
        for name, pairs in dev.items()
    }


def keyword_score(dev: DevSets) -> float | None:
    """Return the share x 100 of held-out dev queries whose target keyword search finds first, or
    None without held-out documents."""
    held_out = first_of(dev, HeldOut)
    return None if held_out is None else score_keywords(held_out).found_first


def dev_texts(dev: DevSets) -> list[str]:
    """Return the distinct texts of all dev sets."""
    sides: list[list[str]] = []
    for one in dev.values():
        if isinstance(one, HeldOut):
            sides += [one.queries, one.targets]
        elif isinstance(one, Pairs):
            sides += [one.left, one.right]
        elif isinstance(one, Labelled):
            sides.append(one.texts)
    return list(dict.fromkeys(text for side in sides for text in side))


def dev_name(dev: DevSets) -> str:
    """Return the name of the dev sets: built-in pairs, a file's name, STS-B dev, STS-B + SICK-R
    dev, own documents or labelled texts."""
    if first_of(dev, HeldOut) is not None:
        return OWN_NAME
    if first_of(dev, Labelled) is not None:
        return LABELS_NAME
    return " + ".join(dev) + (" dev" if dev.keys() <= _TASKS else "")


def with_pairs(settings: Mapping[str, Any], dev: DevSets) -> dict[str, Any]:
    """Return flat settings for display and records, with the dev sets' name as `dev`."""
    return {**settings, "dev": dev_name(dev)}


def dev_digest(dev: DevSets) -> str:
    """Return a digest of the dev sets, by which a resumed run is recognised.

    The names of pairs outside a SentEval folder do not matter.
    """
    if len(dev) == 1 and not dev.keys() <= {*_TASKS, OWN_NAME, LABELS_NAME}:
        dev = {"pairs": next(iter(dev.values()))}
    text = json.dumps([[name, *_contents(one)] for name, one in sorted(dev.items())])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _contents(one: DevSet) -> list[list[Any]]:
    if isinstance(one, Pairs):
        return [one.left, one.right, one.gold.tolist()]
    if isinstance(one, Labelled):
        return [one.texts, one.labels.tolist()]
    if isinstance(one, MaskedRows):
        return [one.rows.flat.tolist(), one.rows.offsets.tolist()]
    return [one.queries, one.targets, one.rows.tolist()]
