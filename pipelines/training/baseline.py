"""The score that a training has to beat: the untouched encoder, read as it is best read.

An encoder whose folder names its pooling is read by that; any other by the mean of its last layer,
the mean of its first and last, or [CLS], whichever scores best on the dev sets. The driver scores
it before any worker starts, once for each encoder: that costs one pass over the dev sentences, no
worker's random numbers, and no second load on every worker; seeds, trials and recipes are handed
what was found. OUTPUT/baseline.json keeps it for a resumed job.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.pooling_config import PoolingConfig, load_pooling_config
from cotbert_core.errors import UserError
from cotbert_core.evaluation import Pairs
from cotbert_core.evaluation.pairs import Encode, cosines, encode_distinct, spearman
from cotbert_core.files import read_json, write_json
from cotbert_core.readouts import build_features
from cotbert_core.readouts.layers import THREE_READOUTS, three_readouts
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.settings import Precision
from pipelines.recording.tracking import BASELINE, BASELINE_SPEARMAN, DEV_SPEARMAN, Run, metric_name
from pipelines.runtime.progress import say
from pipelines.training.dev_sets import dev_name

BASELINE_FILE = "baseline.json"
OWN = {"mean": "mean pooling", "cls": "[CLS] pooling", "mask": "[MASK] reading"}
NAMES = {"last": "mean pooling", "first-last": "first-last average", "cls": "[CLS] vector"}
# What to do about a training that ends below its baseline.
ADVICE = (
    "Train longer or with a lower optimizer.learning_rate, or read the trained encoder as the "
    "untouched one is read (recipe simcse-base with method.readout=mean or cls); reading by [MASK] "
    "pays off when the training starts from a plain language model such as bert-base-uncased."
)


@dataclass(frozen=True)
class Baseline:
    """The untouched encoder's dev score.

    reading: in plain words how it was read. readout: its name in `cotbert_core.readouts.FEATURES`,
    None for the encoder's own. scores: Spearman x 100 by dev set.
    """

    reading: str
    readout: str | None
    scores: Mapping[str, float]

    @property
    def spearman(self) -> float:
        """The mean over the dev sets."""
        return float(np.mean(list(self.scores.values())))

    @property
    def entries(self) -> dict[str, Any]:
        """The baseline's entries in result.json."""
        return {BASELINE: self.reading, BASELINE_SPEARMAN: self.spearman}

    def open(self, encoder: str, precision: Precision = "auto") -> Encode:
        """Return a function of (N,) sentences to (N, D) vectors of the encoder NAME, read so."""
        if self.readout is None:
            return partial(SentenceEncoder.from_pretrained(encoder).encode, precision=precision)
        return build_features(self.readout, load_backbone(encoder), precision=precision)


def score_untouched(
    encoder: str, dev: Mapping[str, Pairs], precision: Precision = "auto"
) -> Baseline:
    """Score the encoder NAME as it is; sentences are cut where the encoder's folder, else the
    encoder itself, has its limit."""
    own = _own_readout(encoder)
    if own is not None:
        reader = SentenceEncoder.from_pretrained(encoder)
        sides = _encode(partial(reader.encode, precision=precision), dev)
        return Baseline(f"{OWN[own]} (its own)", None, _scores(dev, sides))
    reader = SentenceEncoder(three_readouts(load_backbone(encoder)), PoolingConfig("mean"))
    sides = _encode(partial(reader.encode, precision=precision), dev)
    thirds = [np.split(side, len(THREE_READOUTS), axis=1) for side in sides]
    found = [
        Baseline(NAMES[readout], readout, _scores(dev, [side[third] for side in thirds]))
        for third, readout in enumerate(THREE_READOUTS)
    ]
    # Equal cosines alone have no correlation, and NaN is greater than nothing.
    return max(found, key=lambda one: np.nan_to_num(one.spearman, nan=-np.inf))


def _own_readout(encoder: str) -> str | None:
    """The readout that the encoder's folder names; None where it names none or one that is not
    read here."""
    try:
        return load_pooling_config(encoder).get("readout")
    except UserError as error:
        say(f"note: the baseline is not the encoder's own pooling: {error}")
        return None


def _encode(encode: Encode, dev: Mapping[str, Pairs]) -> list[np.ndarray]:
    """The vectors of each dev set's left and right sentences; each distinct one is encoded once."""
    return encode_distinct(encode, *(side for p in dev.values() for side in (p.left, p.right)))


def _scores(dev: Mapping[str, Pairs], sides: list[np.ndarray]) -> dict[str, float]:
    return {
        name: spearman(cosines(left, right), pairs.gold)
        for (name, pairs), left, right in zip(dev.items(), sides[::2], sides[1::2], strict=True)
    }


def baselines(
    output: Path,
    encoders: Mapping[str, Precision],
    dev: Mapping[str, Pairs],
    run: Run,
    given: Mapping[str, Baseline | None] = {},
) -> dict[str, Baseline]:
    """The baseline of each encoder NAME: of the folder's file, else given, else scored now.

    What the file did not have is logged in the run at step 0 and written to the file.
    """
    path = output / BASELINE_FILE
    held = read_json(path) if path.is_file() else {}
    found = {name: Baseline(**values) for name, values in held.items()}
    for name, precision in encoders.items():
        if name in found:
            continue
        found[name] = given.get(name) or _scored_now(name, dev, precision)
        _log(run, found[name], f".{name}" if len(encoders) > 1 else "")
        write_json(path, {name: asdict(baseline) for name, baseline in found.items()})
    return {name: found[name] for name in encoders}


def _scored_now(encoder: str, dev: Mapping[str, Pairs], precision: Precision) -> Baseline:
    """Score a baseline that is not known yet, and show it."""
    # bf16 that is meant for the workers' GPUs can take a driver without it 100 times as long.
    found = score_untouched(encoder, dev, "fp32" if precision == "fp32" else "auto")
    if torch.cuda.is_available():  # the driver would keep memory that its workers need
        torch.cuda.empty_cache()
    say(
        f"baseline: the untouched encoder, read by {found.reading}, scores {found.spearman:.2f} "
        f"({dev_name(dev)})"
    )
    return found


def _log(run: Run, baseline: Baseline, of: str) -> None:
    """of: which encoder, where a run has several."""
    each = {f".{name}": score for name, score in baseline.scores.items()}
    values = {"": baseline.spearman, **(each if len(each) > 1 else {})}
    run.metrics({metric_name(f"{BASELINE_SPEARMAN}{of}{k}"): v for k, v in values.items()})
    run.tags({metric_name(f"{BASELINE}{of}"): baseline.reading})


def baseline_line(result: Mapping[str, Any]) -> tuple[str, float] | None:
    """The label and height of the baseline in a plot of dev scores; None where a result has
    none."""
    if BASELINE not in result:
        return None
    untouched = float(result[BASELINE_SPEARMAN])
    return f"untouched: {result[BASELINE]} {untouched:.2f}", untouched


def baseline_sentence(result: Mapping[str, Any], who: str = "the trained encoder") -> str:
    """Return a sentence on whether a result is better or worse than its baseline, by how much.

    Worse is a warning, with what to try. result: dev_spearman, dev (the pairs' name), baseline and
    baseline_spearman.
    """
    score, untouched = float(result[DEV_SPEARMAN]), float(result[BASELINE_SPEARMAN])
    gap = score - untouched
    if abs(gap) < 0.005:
        how = "as good as"
    elif math.isnan(gap):
        how = "not to be compared with"
    else:
        how = f"{abs(gap):.2f} {'better' if gap > 0 else 'worse'} than"
    sentence = (
        f"{who} scores {score:.2f} on dev ({result['dev']}): {how} the untouched encoder, which "
        f"scores {untouched:.2f} by {result[BASELINE]}."
    )
    return f"warning: {sentence} {ADVICE}" if gap <= -0.005 else sentence[0].upper() + sentence[1:]
