"""What an adaptation records of its options, and the folder that it may continue in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cotbert_core.errors import UserError
from cotbert_core.messages.redaction import without_credentials
from pipelines.adapting.options import AdaptOptions
from pipelines.runtime.progress import say
from pipelines.storage.output_folder import (
    RESULT_FILE,
    SETTINGS_FILE,
    changed_settings,
    check_writable,
    open_output,
)


def open_folder(output: Path, options: AdaptOptions) -> Path:
    """Return a new folder, or that of the same unfinished job; UserError for any other."""
    output, record = (
        Path(output).expanduser().absolute(),
        {"job": "adapt", **option_record(options)},
    )
    settings = output / SETTINGS_FILE
    if not settings.is_file():
        return open_output(output, "adaptation", record, resume=False)
    changed = changed_settings(settings, record)
    if changed or (output / RESULT_FILE).is_file():
        what = f"an adaptation with other {', '.join(sorted(changed))}" if changed else "finished"
        raise UserError(f"output {str(output)!r} is {what}: give a new folder")
    check_writable(output)
    say(f"continuing the adaptation in {output}")
    return output


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
