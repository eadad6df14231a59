"""The section on the study's encoder, from the folder of its run of `cotbert pretrain`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness import markdown_table
from benchmarks.study.entries import written
from cotbert_core.files import read_json

# The settings of the pretraining to show.
SHOWN = (
    *("method.whole_word", "method.packed_length", "batch_size", "epochs", "max_steps"),
    "eval_every",
    *("optimizer.learning_rate", "optimizer.warmup_steps", "dropout", "precision", "seed"),
)


def read_pretraining(encoder: str) -> dict[str, Any] | None:
    """Return settings, corpus, loss curve and digest; None for an encoder not pretrained here."""
    model = Path(encoder)
    run = model.resolve().parent
    if model.name != "model" or not (run / "packed" / "manifest.json").is_file():
        return None
    settings, packed = (read_json(run / name) for name in ("settings.json", "packed/manifest.json"))
    new = run / "encoder" / "new_encoder.json"
    digest = hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest()
    return {
        "settings": {key: settings["settings"][key] for key in SHOWN},
        "new_encoder": read_json(new) if new.is_file() else None,
        "inputs": [Path(name).name for name in packed["source"]["inputs"]],
        "prepared": _prepared(packed),
        "sentences": packed["packed"]["sentences"],
        "rows": packed["rows"],
        "digest": digest[:16],
        **_curve(run / "metrics.jsonl"),
    }


def _prepared(packed: Mapping[str, Any]) -> str:
    """Return the options of `cotbert prepare` that chose the sentences."""
    source, words = packed["source"], ["--max-length", str(packed["max_length"])]
    if packed["packed"]["by_documents"]:
        words += ["--documents", "row"]
    if split := source["cleaning"].get("split"):
        words += ["--split", split]
    if steps := source["cleaning"].get("steps"):
        words += ["--clean", ",".join(steps)]
    if excluded := [Path(name).name for name in source["exclude"]]:
        words += ["--exclude", *excluded]
    return " ".join(words)


def _curve(path: Path) -> dict[str, Any]:
    """Return the tokens and hours of the training, and its dev checks.

    curve: (step, millions of tokens, mean loss since the check before, dev accuracy in %).
    """
    tokens, seconds, losses, curve = 0.0, 0.0, list[float](), []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if "dev_mlm_accuracy" in row:
            loss = sum(losses) / len(losses) if losses else None
            curve.append((row["step"], round(tokens / 1e6, 1), loss, row["dev_mlm_accuracy"]))
            losses = []
        if "loss" in row:
            losses.append(row["loss"])
            tokens += row["tokens_per_second"] * row["step_seconds"]
            seconds += row["step_seconds"]
    return {"tokens": round(tokens), "hours": round(seconds / 3600, 2), "curve": curve}


def section(facts: Mapping[str, Any] | None) -> str:
    """Return the section on the encoder's pretraining; empty if it is unknown."""
    if facts is None:
        return ""
    given = ", ".join(f"`{k}={written(v)}`" for k, v in facts["settings"].items() if v is not None)
    made = facts["new_encoder"]
    new = ""
    if made is not None:
        new = (
            f"A new encoder (`--new {made['layers']}x{made['hidden']} --vocabulary "
            f"{made['vocabulary']}`), "
        )
    corpus = ", ".join(facts["inputs"])
    if "prepared" in facts:
        corpus += f" (`cotbert prepare {facts['prepared']}`)"
    rows = [
        (f"{step:,}", str(tokens), "" if loss is None else f"{loss:.3f}", f"{accuracy:.2f}")
        for step, tokens, loss, accuracy in facts["curve"]
    ]
    header = ("step", "million tokens", "loss since the line before")
    return (
        f"{new or 'An encoder '}trained by `cotbert pretrain` on {corpus}: "
        f"{facts['sentences']:,} sentences in {facts['rows']:,} rows, {given}. It has seen "
        f"{facts['tokens'] / 1e6:.1f} million tokens in {facts['hours']:.2f} hours; "
        f"SHA-256 of its weights: {facts['digest']}.\n\n"
        + markdown_table((*header, "held-out tokens predicted, %"), rows)
    )
