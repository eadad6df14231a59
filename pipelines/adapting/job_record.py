"""What an adaptation records of its options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cotbert_core.messages.redaction import without_credentials
from pipelines.adapting.options import AdaptOptions


def record(options: AdaptOptions) -> dict[str, Any]:
    """Return what a continued adaptation must have in common with the one that was started."""
    return {"job": "adapt", **option_record(options)}


def option_record(options: AdaptOptions) -> dict[str, Any]:
    """Return the options as JSON values; the job is another one if they differ."""
    left_out = {"candidates", "without", "max_concurrent"}
    given = {k: v for k, v in vars(options).items() if k not in left_out}
    given = {k: v for k, v in given.items() if v is not None and v is not False}
    given |= {k: str(v) for k, v in given.items() if isinstance(v, Path)}
    record = {
        **given,
        "inputs": list(options.inputs),
        "documents": options.read_as,
        "clean": {k: v for k, v in vars(options.clean).items() if v not in (None, ())},
        "chosen": list(options.chosen),
    }
    return dict(without_credentials(record))  # inputs may be URIs with passwords


def params(options: AdaptOptions) -> dict[str, Any]:
    """Return the options as the params of an MLflow run."""
    record = {k: v for k, v in option_record(options).items() if k != "clean"}
    return {**record, "inputs": ",".join(options.inputs), "chosen": ",".join(options.chosen)}


def about(options: AdaptOptions) -> str:
    """Return what an adaptation does, in a sentence for MLflow."""
    return (
        f"Adapts {Path(options.encoder).name} to {', '.join(options.inputs)}; candidates: "
        f"{', '.join(options.chosen)}."
    )
