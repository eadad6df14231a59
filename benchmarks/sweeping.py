"""Compare `cotbert tune` with the same trainings one by one by `cotbert train`.

Both sides are whole commands, with imports, Ray's start, models, reports and MLflow.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.commands import sets, timed
from benchmarks.harness import DisagreementError, Row, first
from cotbert_core.encoder.locations import MINILM
from cotbert_core.files import read_json
from pipelines.training.metrics_log import METRICS_FILE, read_rows
from pipelines.tuning.state import WORK

RATES = (5e-6, 1e-5, 2e-5, 3e-5, 5e-5, 1e-4)
SENTENCES = 2_000
# The steps and dev checks of a sweep may take 1.25 times as long as those of its trainings alone.
TARGET = 1 / 1.25
SETTINGS = {"max_steps": 10, "eval_every": 5, "batch_size": 64, "cpus_per_worker": os.cpu_count()}
RATE = "optimizer.learning_rate"


def run(texts: Sequence[str], rounds: int) -> list[Row]:
    """Return two ratios, measured once, whatever `rounds` says: they take minutes.

    The steps and dev checks of the sweep are compared with those of the trainings, and the whole
    sweep with the whole commands.
    """
    del rounds
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        (home / "text.txt").write_text("\n".join(first(texts, SENTENCES)), encoding="utf-8")
        (home / "rates.yaml").write_text(
            json.dumps({"recipe": "cot-bert-base", "settings": {RATE: {"grid": RATES}}})
        )
        corpus, encoder = home / "corpus", ("--encoder", MINILM)
        timed(home, "prepare", "--input", home / "text.txt", "--output", corpus, *encoder)
        given = ("--corpus", corpus, *encoder, *sets(SETTINGS))
        whole, work = [], []
        for number, rate in enumerate(RATES):
            output = home / f"train-{number}"
            job = ("train", "cot-bert-base", *given, *sets({RATE: rate}))
            whole.append(timed(home, *job, "--output", output))
            rows = read_rows(output / METRICS_FILE).values()
            work.append(sum(row.get(key, 0.0) for row in rows for key in WORK))
        output = home / "sweep"
        sweep = timed(home, "tune", home / "rates.yaml", *given, "--output", output)
        result = read_json(output / "result.json")
        _check(result, [home / f"train-{number}" for number in range(len(RATES))])
    what, check = f"{len(RATES)} trainings of {SETTINGS['max_steps']} steps", "same curves"
    own = result["training_seconds"]
    return [
        Row(what, "steps of tune", "steps of train", own, sum(work), TARGET, check),
        Row(what, "tune, the command", "train, the commands", sweep, sum(whole), None, check),
    ]


def _check(result: Mapping[str, Any], folders: Sequence[Path]) -> None:
    """Raise DisagreementError unless trials and trainings have equal dev scores."""
    alone = [read_json(folder / "result.json")["dev_spearman"] for folder in folders]
    swept = [trial["dev_spearman"] for trial in result["trials"]]
    if swept != alone:
        raise DisagreementError(f"the sweep's dev scores are {swept}, the trainings' {alone}")
