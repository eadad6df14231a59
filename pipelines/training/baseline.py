"""The baseline of a training: the dev score of the untouched encoder with its best pooling.

An encoder whose folder names its pooling is scored with it, any other with the mean of the last
layer, the mean of the first and last, or [CLS], whichever scores best on the dev sets. The driver
scores each encoder once, before any worker starts, so workers neither load it nor use random
numbers for it; all seeds, trials and recipes share the result. OUTPUT/baseline.json stores it for
a resumed job.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.locations import short_name
from cotbert_core.encoder.pooling_config import PoolingConfig
from cotbert_core.encoder.pooling_files import load_pooling_config, unread_notes
from cotbert_core.errors import UserError
from cotbert_core.evaluation.pairs import Encode, EncodeFunctions
from cotbert_core.files import read_json, write_json
from cotbert_core.readouts import build_features
from cotbert_core.readouts.layers import THREE_READOUTS, ThreeReadouts
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.settings import Precision
from cotbert_core.training.dev_scores import sort_key
from pipelines.recording.dev_metric import DevMetric, metric_in, with_suffix
from pipelines.recording.metric_names import BASELINE, BASELINE_MRR10, BASELINE_SPEARMAN, DEV_MRR10
from pipelines.recording.tracking import Run
from pipelines.runtime.progress import say, say_once
from pipelines.training.dev_sets import (
    DevSets,
    dev_name,
    dev_texts,
    graded,
    keyword_score,
    score_dev,
    score_graded,
)

BASELINE_FILE = "baseline.json"
OWN = {"mean": "mean pooling", "cls": "[CLS] pooling", "mask": "[MASK] reading"}
NAMES = {"last": "mean pooling", "first-last": "first-last average", "cls": "[CLS] vector"}


@dataclass(frozen=True)
class Baseline:
    """The untouched encoder's dev score.

    reading: description of its pooling. readout: name of the pooling in
    `cotbert_core.readouts.FEATURES`, None for the encoder's own. scores: Spearman x 100 by graded
    dev set. own: by metric, found first and MRR@10 x 100 on held-out documents, or the accuracy on
    masked rows; empty if graded pairs choose the step.
    """

    reading: str
    readout: str | None
    scores: Mapping[str, float]
    own: Mapping[str, float] = field(default_factory=dict)

    @property
    def metric(self) -> DevMetric:
        return metric_in(self.own)

    @property
    def score(self) -> float:
        """The score to compare trained encoders with."""
        return float(self.own[self.metric.name]) if self.own else self.spearman

    @property
    def spearman(self) -> float:
        """The mean Spearman x 100 over the graded dev sets; nan if there are none."""
        return float(np.mean(list(self.scores.values()))) if self.scores else math.nan

    @property
    def entries(self) -> dict[str, Any]:
        """The baseline's entries in result.json."""
        return {BASELINE: self.reading, **self.numbers()}

    def numbers(self) -> dict[str, float]:
        """The baseline's scores by name; with held-out documents those of graded pairs too."""
        if not self.own:
            return {BASELINE_SPEARMAN: self.spearman}
        beside = {f"{BASELINE_SPEARMAN}.{name}": score for name, score in self.scores.items()}
        if DEV_MRR10 in self.own:
            beside[BASELINE_MRR10] = self.own[DEV_MRR10]
        return {self.metric.baseline: self.score, **beside}

    def open(self, encoder: str, precision: Precision = "auto") -> Encode:
        """Return a function from N sentences to (N, D) vectors of the encoder NAME."""
        if self.readout is None:
            return partial(SentenceEncoder.from_pretrained(encoder).encode, precision=precision)
        return build_features(self.readout, load_backbone(encoder), precision=precision)


def score_untouched(
    encoder: str,
    dev: DevSets,
    precision: Precision = "auto",
    readouts: Collection[str] = THREE_READOUTS,
) -> Baseline:
    """Return the baseline of the encoder NAME.

    Sentences are truncated to the limit in the encoder's folder, else to the encoder's own limit.
    readouts: those that are tried if the folder names none.
    """
    own, texts = _own_readout(encoder), dev_texts(dev)
    if own is not None:
        encode = SentenceEncoder.from_pretrained(encoder).functions(precision)
        vectors = encode.texts(texts)
        return _scored(f"its own {OWN[own]}", None, dev, texts, vectors, encode.queries)
    backbone = load_backbone(encoder)
    backbone.model = ThreeReadouts(backbone.model)
    vectors = SentenceEncoder(backbone, PoolingConfig("mean")).encode(texts, precision=precision)
    thirds = np.split(vectors, len(THREE_READOUTS), axis=1)
    found = [
        _scored(NAMES[readout], readout, dev, texts, third)
        for readout, third in zip(THREE_READOUTS, thirds, strict=True)
        if readout in readouts
    ]
    return max(found, key=lambda one: sort_key(one.score))


def _own_readout(encoder: str) -> str | None:
    """Return the pooling that the encoder's folder names; None for none or an unsupported one."""
    try:
        readout = load_pooling_config(encoder).get("readout")
        for note in unread_notes(encoder):
            say_once(note)
        return readout
    except UserError as error:
        say(
            "warning: neither the baseline nor the training reads the encoder in its own way: "
            f"{error}"
        )
        return None


def _scored(
    reading: str,
    readout: str | None,
    dev: DevSets,
    texts: Sequence[str],
    vectors: np.ndarray,
    queries: Encode | None = None,
) -> Baseline:
    """Return the baseline of an encoder from the (N, D) vectors of the dev sets' N texts.

    queries: encodes the queries of held-out documents; None: they are among the texts.
    """
    place = {text: row for row, text in enumerate(texts)}

    def encode(wanted: Sequence[str]) -> np.ndarray:
        return vectors[[place[text] for text in wanted]]

    scores = score_graded(encode, graded(dev))
    rest = {name: one for name, one in dev.items() if name not in scores}
    own = score_dev(EncodeFunctions(encode, queries), rest) if rest else {}
    return Baseline(reading, readout, scores, own)


def baselines(
    output: Path,
    encoders: Mapping[str, Precision],
    dev: DevSets,
    run: Run,
    given: Mapping[str, Baseline | None] = {},
    readouts: Collection[str] = THREE_READOUTS,
) -> dict[str, Baseline]:
    """Return the baseline of each encoder NAME: from the output folder's file, else from `given`,
    else scored now. readouts: those of `score_untouched`.

    Baselines that the file lacks are logged to the run at step 0 and written to the file.
    """
    path = output / BASELINE_FILE
    held = read_json(path) if path.is_file() else {}
    found = {name: Baseline(**values) for name, values in held.items()}
    for name, precision in encoders.items():
        if name in found:
            continue
        found[name] = given.get(name) or _scored_now(name, dev, precision, readouts)
        _log(run, found[name], f".{name}" if len(encoders) > 1 else "")
        write_json(path, {name: asdict(baseline) for name, baseline in found.items()})
    return {name: found[name] for name in encoders}


def _scored_now(
    encoder: str, dev: DevSets, precision: Precision, readouts: Collection[str]
) -> Baseline:
    """Score an encoder, show the baseline and return it."""
    say(f"scoring the untouched encoder {short_name(encoder)} ({dev_name(dev)})")
    # bf16, meant for the workers' GPUs, can be 100 times slower on the driver.
    precision = "fp32" if precision == "fp32" else "auto"
    found = score_untouched(encoder, dev, precision, readouts)
    words, percent = keyword_score(dev), found.metric.percent
    beside = "" if words is None else f", keyword search (BM25) {words:.2f}{percent}"
    say(
        f"baseline: the untouched encoder with {found.reading} scores "
        f"{found.score:.2f}{percent} ({dev_name(dev)}){beside}"
    )
    return found


def _log(run: Run, baseline: Baseline, of: str) -> None:
    """Log a baseline to a run. of: suffix with the encoder's name, if the run has several."""
    numbers = baseline.numbers()
    if not baseline.own and len(baseline.scores) > 1:
        numbers |= {f"{BASELINE_SPEARMAN}.{name}": v for name, v in baseline.scores.items()}
    run.metrics({with_suffix(name, of): value for name, value in numbers.items()})
    run.tags({f"{BASELINE}{of}": baseline.reading})
