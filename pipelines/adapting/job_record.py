"""What an adaptation records of its options."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cotbert_core.encoder.locations import short_name
from cotbert_core.errors import UserError
from cotbert_core.files import read_json, write_json
from cotbert_core.messages.redaction import without_credentials
from pipelines.adapting.options import AdaptOptions
from pipelines.preparing.manifest import cleaning

# The stamp of each input file of corpus/. Adaptations of earlier versions have none.
INPUTS_FILE = "inputs.json"
# Folders of the output: the encoder that is handed back, and the prepared documents.
MODEL, CORPUS = "model", "corpus"


def record(options: AdaptOptions) -> dict[str, Any]:
    """Return what a continued adaptation must have in common with the one that was started."""
    return {"job": "adapt", **option_record(options)}


def require_same_inputs(output: Path, stamps: Mapping[str, list[int]], is_prepared: bool) -> None:
    """Raise UserError if the corpus of an adaptation was prepared from other files.

    stamps: [size, time] of each file, which are stored if the corpus is not prepared yet.
    """
    file, now = output / INPUTS_FILE, without_credentials(stamps)
    if not is_prepared:
        write_json(file, now)
    before = read_json(file) if file.is_file() else now
    if changed := sorted(k for k in {**before, **now} if before.get(k) != now.get(k)):
        raise UserError(
            f"the inputs have changed since the adaptation in {str(output)!r} was started "
            f"({len(changed):,} in all, such as {changed[0]!r}): give a new folder"
        )


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
    clean = {f"clean.{name}": value for name, value in cleaning(options.clean).items()}
    return {
        **record,
        **clean,
        "inputs": ",".join(options.inputs),
        "chosen": ",".join(options.chosen),
    }


def about(options: AdaptOptions) -> str:
    """Return what an adaptation does, in a sentence for MLflow."""
    return (
        f"Adapts {short_name(options.encoder)} to {', '.join(options.inputs)}; candidates: "
        f"{', '.join(options.chosen)}."
    )
