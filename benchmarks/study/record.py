"""The record of a study, a dict of plain values: docs/papers/*.json.

Scores are Spearman correlations x 100, or accuracies in %. Lists hold a value for each seed.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.harness import machine, machine_line
from benchmarks.study.entries import METHODS, READOUTS, UNTRAINED, Entry, Group
from benchmarks.study.language_model import read_pretraining
from benchmarks.study.rates import best_rate, tried_rates
from benchmarks.study.runs import Study
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.files import read_json


def collect(study: Study) -> dict[str, Any]:
    """Return the record of all finished runs."""
    tokens = study.output / "tokens.txt"
    return {
        "about": _about(study),
        "pretraining": read_pretraining(study.encoder),
        "trained": {
            entry.label: found
            for group in study.chosen()
            for entry in group.entries
            if (found := _trained(study, group, entry)) is not None
        },
        "rates": tried_rates(study.output),
        "readouts": _scores(study.output / "readouts", list(READOUTS), "average"),
        "transfer": _scores(study.output / "transfer", _labels(), "transfer_average"),
        "held_out": _scores(study.output / "held-out", _labels(), "held-out"),
        "geometry": {
            name: [row | {"model": _name(row["model"])} for row in read_json(path)["models"]]
            for name in ("geometry-untrained", "geometry")
            if (path := study.output / name / "geometry.json").is_file()
        },
        "templates": _templates(study.output / "search-template"),
        "tokens": tokens.read_text("utf-8") if tokens.is_file() else "",
    }


def _labels() -> list[str]:
    return [UNTRAINED, *(entry.label for entry in METHODS.entries)]


def _about(study: Study) -> dict[str, Any]:
    backbone = load_backbone(study.encoder)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return {
        "encoder": _name(study.encoder),
        "layers": backbone.model.config.num_hidden_layers,
        "hidden": backbone.hidden_size,
        "parameters": sum(weight.numel() for weight in backbone.model.parameters()),
        "steps": study.steps,
        "batch_size": study.batch_size,
        "machine": machine_line(machine()),
        "commit": commit.stdout.strip() or "unknown",
    }


def _name(model: str) -> str:
    """Return an encoder's name; for a model/ folder the name of its run or recipe."""
    path = Path(model)
    if path.name != "model":
        return path.name
    run = path.resolve().parent
    return run.parent.name if run.name.startswith("seed-") else run.name


def _trained(study: Study, group: Group, entry: Entry) -> dict[str, Any] | None:
    """Return the scores of an entry by seed; None if its comparison has not finished."""
    folder = study.output / group.name / entry.label
    if not (folder / "result.json").is_file():
        return None
    result = read_json(folder / "result.json")
    row = next(row for row in result["rows"] if row["entry"] == entry.label)
    runs = [folder / entry.label / f"seed-{seed}" for seed in result["seeds"]]
    tests = [read_json(run / "test.json") for run in runs]
    tasks = {task: [test[task]["spearman"] for test in tests] for task in result["tasks"]}
    kept = ("method", "dev_before", "dev", "test", "seconds")
    return {key: row[key] for key in kept} | {
        "group": group.name,
        "recipe": entry.recipe,
        "seeds": result["seeds"],
        "steps": [read_json(run / "result.json")["steps"] for run in runs],
        "rate": best_rate(study.output, entry.recipe) if study.steps else None,
        "tasks": tasks,
        "curves": [curve(run / "metrics.jsonl") for run in runs],
    }


def curve(path: Path) -> list[tuple[float, float]]:
    """Return the seconds of training before each dev check, and its score."""
    seconds, found = 0.0, []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        seconds += row.get("step_seconds", 0.0)
        if "dev_spearman" in row:
            found.append((round(seconds, 2), row["dev_spearman"]))
    return found


def _scores(folder: Path, names: list[str], main: str) -> dict[str, Any]:
    """Return the scores of each finished evaluation, with the interval of the main score."""
    found = {}
    for name in names:
        if (path := folder / f"{name}.json").is_file():
            found[name] = _flat(read_json(path), main)
    return found


def _flat(result: dict[str, Any], main: str) -> dict[str, Any]:
    """Return the score of each task of an evaluation, and the main score with its interval."""
    value = result[main]
    if isinstance(value, dict):
        key = next(key for key in ("found_first", "accuracy", "spearman") if key in value)
        value, low, high = value[key], value["low"], value["high"]
    else:
        low, high = (result.get(f"{main}_{end}") for end in ("low", "high"))
    tasks = {
        task: entry.get("spearman", entry.get("accuracy"))
        for task, entry in result.items()
        if isinstance(entry, dict) and ("spearman" in entry or "accuracy" in entry)
    }
    return {"score": value, "low": low, "high": high, "tasks": tasks}


def _templates(folder: Path) -> dict[str, float]:
    """Return the dev score of each template of the search."""
    if not (folder / "result.json").is_file():
        return {}
    lines = (folder / "templates.jsonl").read_text(encoding="utf-8").splitlines()
    return {row["template"]: row["spearman"] for row in map(json.loads, lines)}
