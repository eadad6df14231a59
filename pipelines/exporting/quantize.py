"""cotbert quantize: write an encoder with an int8 graph for CPUs into a folder, atomically.

The folder is a model like any other, with the graph in int8/. It is only written if no score falls
by more than the user allows; the record of the graph gives the scores and the speed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from cotbert_core.encoder.locations import INT8_FOLDER
from cotbert_core.evaluation.pairs import cosines
from cotbert_core.exporting.int8_graph import RECORD_FILE, record_facts, save_int8
from cotbert_core.exporting.openvino_model import check_openvino, with_openvino
from cotbert_core.exporting.quantization import check_nncf, full_rows, quantized
from cotbert_core.files import atomic_folder, write_text
from cotbert_core.messages.redaction import without_credentials
from cotbert_core.saving.lineage import CARD_FILE
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.settings import Precision
from pipelines.evaluating.differences import differences, headlines
from pipelines.evaluating.evaluation_data import EvaluationData, read_evaluation_data
from pipelines.evaluating.options import EvaluateOptions
from pipelines.evaluating.scoring import Scored, score_of
from pipelines.exporting.calibration_texts import calibration_texts
from pipelines.exporting.source_files import INT8_HEADING, copy_source_files
from pipelines.options.jobs import QuantizeOptions
from pipelines.recording import tracking
from pipelines.recording.fetching import fetch_model
from pipelines.runtime.progress import say, shown_warnings
from pipelines.storage.output_folder import require_empty
from pipelines.storage.resumable_output import locked_output, versions

# The packages whose versions affect the numbers of a graph.
MADE_BY = ("openvino", "nncf", "torch", "transformers")
# Number of timings of each encoder on the same texts, of which the best is its rate.
ROUNDS = 3
# Least mean cosine of int8 to fp32 vectors: 0.998 for all-MiniLM-L6-v2, 0.99 for random encoders.
LEAST_MEAN_COSINE = 0.95


class LossError(RuntimeError):
    """The int8 graph loses more than the user allows; the exit status is 1."""


@dataclass(frozen=True)
class _Job:
    """The encoder to quantize, texts to calibrate and to compare, and the evaluation data."""

    model: str
    encoder: SentenceEncoder
    calibration: list[str]
    compared: list[str]
    data: EvaluationData


def quantize(options: QuantizeOptions, output: Path) -> dict[str, Any]:
    """Write the model folder `output` and return the facts of its graph.

    Raises UserError for invalid options before anything is computed, and LossError if a score falls
    by more than options.max_loss.
    """
    output = require_empty(output)
    job = _open(options)
    tracked = tracking.tracked_run("quantize", vars(options), output=output)
    with locked_output(output), tracked as run:
        with atomic_folder(output) as folder:
            facts = _write(job, options, folder)
            _check_loss(facts, options.max_loss)
        run.metrics({key: v for key, v in facts.items() if isinstance(v, float)})
        run.artifact(output / INT8_FOLDER / RECORD_FILE)
    shown = {key: value for key, value in facts.items() if isinstance(value, (int, float))}
    return {**shown, "sentences": _sentences(facts)}


def _open(options: QuantizeOptions) -> _Job:
    """Read and check everything, before the encoder computes anything."""
    check_nncf()
    scored = EvaluateOptions(
        options.model, options.senteval, options.pairs, allow_missing=True, corpus=options.corpus
    )
    data = read_evaluation_data(scored)
    model = fetch_model(options.model)
    texts = calibration_texts(options)
    encoder = SentenceEncoder.from_pretrained(model)
    check_openvino(encoder)
    return _Job(model, encoder, texts[::2], texts[1::2], data)


def _write(job: _Job, options: QuantizeOptions, folder: Path) -> dict[str, Any]:
    """Write the model with graph and card into a folder; return the graph's facts."""
    say(f"scoring {options.model} as it is")
    before = _scores(job.data, job.encoder, "fp32")
    exact = job.encoder.encode(job.compared, precision="fp32")
    say(f"calibrating int8 on {len(job.calibration):,} texts")
    with shown_warnings():
        job.encoder.save_pretrained(folder)
    saved = SentenceEncoder.from_pretrained(folder)
    save_int8(quantized(saved, job.calibration), folder)
    fast = with_openvino(saved)
    say("scoring it in int8")
    after = _scores(job.data, fast)
    same = cosines(exact, fast.encode(job.compared))
    full = full_rows(saved, job.compared)
    same_full = cosines(saved.encode_tokens(full, precision="fp32"), fast.encode_tokens(full))
    rates = _rates(job.compared, {"torch": job.encoder, "int8": fast})
    facts = {
        "calibration_texts": len(job.calibration),
        "compared_texts": len(job.compared),
        "cosine_mean": float(same.mean()),
        "cosine_lowest_percent": float(np.quantile(same, 0.01)),
        "cosine_lowest": float(same.min()),
        "cosine_mean_full_length": float(same_full.mean()),
        "sentences_per_second": rates["int8"],
        "sentences_per_second_torch": rates["torch"],
        "speedup": rates["int8"] / rates["torch"],
        "scores": {"before": before.entries, "after": after.entries},
        "differences": differences(before, after),
        "inputs": sorted(set(without_credentials(options.inputs))),
        "versions": versions() | {name: version(name) for name in MADE_BY},
    }
    record_facts(folder, facts)
    copy_source_files(job.model, folder)
    _write_card(folder, facts)
    return facts


def _scores(
    data: EvaluationData, encoder: SentenceEncoder, precision: Precision = "auto"
) -> Scored:
    """Return an encoder's scores as `cotbert evaluate` computes them, queries by their template."""
    return data.score(encoder.functions(precision), EvaluateOptions.resamples)


def _rates(texts: Sequence[str], encoders: Mapping[str, SentenceEncoder]) -> dict[str, float]:
    """Return the sentences/s of each encoder on the same texts, in its own number format."""
    best = dict.fromkeys(encoders, float("inf"))
    for _ in range(ROUNDS):
        for name, encoder in encoders.items():
            started = time.perf_counter()
            encoder.encode(texts)
            best[name] = min(best[name], time.perf_counter() - started)
    return {name: len(texts) / seconds for name, seconds in best.items()}


def _check_loss(facts: Mapping[str, Any], most: float) -> None:
    """Raise LossError if a score fell by more than `most` points, or vectors differ too much."""
    if not facts["cosine_mean"] >= LEAST_MEAN_COSINE:
        raise LossError(
            f"the vectors in int8 have a mean cosine of {facts['cosine_mean']:.3f} to those in "
            f"fp32, and at least {LEAST_MEAN_COSINE} is needed: nothing was written; this encoder "
            "cannot be quantized"
        )
    before, after = facts["scores"]["before"], facts["scores"]["after"]
    for name, entry in facts["differences"].items():
        # A single query of 1,000 is a tenth of a point; MRR@10 counts near misses too.
        if isinstance(before[name], Mapping) and "found_first" in before[name]:
            continue
        # Equal cosines of all pairs have no correlation, which is a loss.
        if entry["difference"] is None or entry["difference"] < -most:
            raise LossError(
                f"int8 changes {name} from {score_of(before[name]):.2f} to "
                f"{score_of(after[name]):.2f}, more than --max-loss {most:g} allows: nothing was "
                "written; give texts of the kind that you will embed, more of them (--rows), or a "
                "larger --max-loss"
            )


def _write_card(folder: Path, facts: Mapping[str, Any]) -> None:
    """Add a description of int8/ to the model card."""
    card = (folder / CARD_FILE).read_text(encoding="utf-8")
    lines = " ".join(_sentences(facts))
    about = (
        f"`{INT8_FOLDER}/` holds a graph of the same encoder with products of 8-bit integers. "
        "`cotbert embed` and `cotbert serve` run it with OpenVINO on CPUs. Other libraries read "
        f"the weights beside it, in full precision. {lines}"
    )
    write_text(folder / CARD_FILE, f"{card.rstrip()}\n{INT8_HEADING}\n{about}\n")


def _sentences(facts: Mapping[str, Any]) -> list[str]:
    """Return sentences on the graph's speed and on each score, for the terminal and the card."""
    fast, torch = facts["sentences_per_second"], facts["sentences_per_second_torch"]
    ratio = round(facts["speedup"], 1)
    how = f"{ratio} times as fast as torch" if ratio > 1 else "no faster than torch"
    gain = f"int8 is {how} on this machine ({fast:,.0f} against {torch:,.0f} sentences/s)."
    entries = headlines(facts["differences"])
    return [gain, *(_change(name, of, entry, facts["scores"]) for name, of, entry in entries)]


def _change(name: str, of: str, entry: Mapping[str, Any], scores: Mapping[str, Any]) -> str:
    """Return a score before and after, and whether its change may be chance."""
    before, after = (score_of(scores[when][name]) for when in ("before", "after"))
    low, high = entry["low"], entry["high"]
    unsure = before != after and (low is None or low <= 0 <= high)
    chance = ", which may be chance" if unsure else ""
    return f"{of[0].upper()}{of[1:]}: {before:.2f} before, {after:.2f} in int8{chance}."
