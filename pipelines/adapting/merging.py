"""cotbert merge: average the weights of two encoders, as a model folder that is complete or absent.

The pooling, the template and the head are those of the second encoder, which is the trained one.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from cotbert_core.encoder.locations import MODEL_FOLDER, encoder_path, locate_encoder
from cotbert_core.encoder.merging import merge_backbones
from cotbert_core.encoder.pooling_config import PoolingConfig
from cotbert_core.encoder.prompts import prompt_of_template
from cotbert_core.exporting.int8_graph import has_int8
from cotbert_core.files import atomic_folder, read_json, write_json
from cotbert_core.saving.lineage import data_of
from cotbert_core.saving.markdown import code
from cotbert_core.saving.training_metadata import TrainingMetadata
from cotbert_core.sentence_encoder import SentenceEncoder
from pipelines.options.jobs import MergeOptions
from pipelines.recording import tracking
from pipelines.recording.fetching import fetch_model
from pipelines.runtime.progress import say, shown_warnings
from pipelines.storage.output_folder import RESULT_FILE, require_empty
from pipelines.storage.resumable_output import locked_output
from pipelines.training.training_metadata import made_now

# The weight of the trained encoder in the average with the untouched one.
TRAINED_WEIGHT = 0.5


def average(encoder: str, model: Path, merged: Path) -> None:
    """Average a model of an adaptation with the untouched encoder, unless an earlier run did it.

    In an earlier run another candidate may have been the best.
    """
    done = merged / RESULT_FILE
    if not done.is_file() or read_json(done)["second"] != str(model):
        done.unlink(missing_ok=True)  # first: what a kill leaves of the folder is not done
        shutil.rmtree(merged, ignore_errors=True)
        merge(encoder, str(model), TRAINED_WEIGHT, merged)


def merge_tracked(options: MergeOptions, output: Path) -> dict[str, Any]:
    """Merge in an MLflow run of its own, and return the result."""
    output = require_empty(output)
    tracked = tracking.tracked_run("merge", vars(options), output=output)
    with locked_output(output), tracked as run:
        result = merge(options.first, options.second, options.weight, output)
        run.artifact(output / RESULT_FILE)
    return result


def merge(
    first: str | Path, second: str | Path, weight: float, output: str | Path
) -> dict[str, Any]:
    """Write the model folder `output` and return the result.

    first, second: MODELs. weight: the second's share of each weight, 0 to 1. Raises UserError for
    encoders that do not fit together, before anything is written.
    """
    options = MergeOptions(str(first), str(second), float(weight))  # weight may be numpy's
    output = require_empty(Path(output))
    names = options.first, options.second
    encoders = [SentenceEncoder.from_pretrained(fetch_model(name)) for name in names]
    backbone = merge_backbones(encoders[0].backbone, encoders[1].backbone, options.weight)
    merged = SentenceEncoder(backbone, encoders[1].pooling, encoders[1].head)
    data = data_of(Path(locate_encoder(encoders[1].backbone.name)))
    metadata = TrainingMetadata(data, made=_made(options))
    if note := _prompts_note(options, *(encoder.pooling for encoder in encoders)):
        say(note)
    if any(has_int8(encoder.backbone.name) for encoder in encoders):
        say("note: the average has no int8 graph: `cotbert quantize` makes one of it")
    with atomic_folder(output) as folder:
        with shown_warnings():
            merged.save_pretrained(folder, metadata)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        result = {
            **vars(options),
            "readout": merged.pooling.readout,
            "template": merged.pooling.template and merged.pooling.template.text,
            "dimension": merged.dimension,
            "megabytes": size / 1e6,
        }
        write_json(folder / RESULT_FILE, result)
    return result


def _prompts_note(options: MergeOptions, first: PoolingConfig, second: PoolingConfig) -> str | None:
    """Return a note if the encoders expect different prompts: the average has the second's."""
    before, after = _prompts(first), _prompts(second)
    if before is None or after is None or before == after:
        return None
    return (
        f"note: {options.first!r} expects {before[0]!r} before texts and {before[1]!r} before "
        f"queries, {options.second!r} expects {after[0]!r} and {after[1]!r}: the average has the "
        "prompts of the second"
    )


def _prompts(pooling: PoolingConfig) -> tuple[str, str] | None:
    """Return the prompts before texts and queries, '' for none; None if a mask is read instead."""
    if pooling.template is not None and pooling.template.stages:
        return None
    text = "" if pooling.template is None else prompt_of_template(pooling.template)
    return text, text if pooling.query is None else prompt_of_template(pooling.query)


def _made(options: MergeOptions) -> dict[str, str]:
    shares = (1 - options.weight, options.first), (options.weight, options.second)
    return {
        "weights": " and ".join(f"{share:.4g} of {code(_short(name))}" for share, name in shares),
        "vector and head": f"those of {code(_short(options.second))}",
        **made_now(),
    }


def _short(name: str) -> str:
    """Return a MODEL without the folders of this machine, which a published card must not show."""
    path = encoder_path(name)
    if not path.exists():
        return name
    path = path.resolve()
    return path.parent.name if path.name == MODEL_FOLDER else path.name
