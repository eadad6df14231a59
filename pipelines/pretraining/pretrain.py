"""cotbert pretrain: masked language modelling on a corpus, from an encoder or from a new one.

It is a training (pipelines.training.train) whose corpus is packed and whose dev score is the
accuracy on held-out rows. The output folder holds packed/, for a new encoder also encoder/, and
then what any training writes; model/ has the masked-language-model head.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from cotbert_core.encoder.backbone import load_backbone, load_tokenizer
from cotbert_core.encoder.locations import absolute_name
from cotbert_core.errors import UserError, counted
from cotbert_core.files import output_path
from cotbert_core.method_settings.baselines import MlmSettings
from cotbert_core.methods import build_method
from cotbert_core.settings import TrainSettings, override
from cotbert_core.templates.wrapping import BoundTemplate
from pipelines.pretraining.new_encoder import NewEncoder, make_encoder
from pipelines.pretraining.packed_corpus import Packing, packed_corpus
from pipelines.recording.metric_names import DEV_MLM_ACCURACY
from pipelines.runtime.progress import say
from pipelines.storage.corpus import Corpus
from pipelines.storage.output_folder import RESULT_FILE, SETTINGS_FILE, require_job_folder
from pipelines.storage.resumable_output import locked_output
from pipelines.training.baseline import BASELINE_FILE, Baseline
from pipelines.training.dev_sets import ROWS_NAME, MaskedRows
from pipelines.training.train import train
from pipelines.training.training_run import DEFAULT_OPTIONS, RunOptions

# What lies in the output folder before the training begins.
PACKED, ENCODER = "packed", "encoder"
HEAD = "its masked-language-model head"


def pretrain(
    settings: TrainSettings,
    corpus: Corpus,
    output: Path,
    options: RunOptions = DEFAULT_OPTIONS,
    *,
    new: NewEncoder | None = None,
) -> dict[str, Any]:
    """Train and return the result, as pipelines.training.train does.

    settings: of method mlm; max_length follows method.packed_length. new: make and train a new
    encoder instead of the settings' own. Raises UserError before anything starts.
    """
    output = output_path(output)
    _check(settings, corpus, output)
    with locked_output(output):  # `train` locks it too, after this
        if new is not None:
            make_encoder(new, corpus, output / ENCODER, settings.seed)
            settings = override(settings, {"encoder": str(output / ENCODER)})
        settings = override(settings, {"encoder": absolute_name(settings.encoder)})
        packing = _packing(settings, corpus, retokenized=new is not None)
        settings = override(settings, {"max_length": packing.capacity})
        packed, rows = packed_corpus(packing, output / PACKED)
    facts = packed.manifest["packed"]
    say(
        f"packed {counted(facts['sentences'], 'sentence')} into {counted(len(packed), 'row')} of "
        f"up to {packing.capacity} tokens; held out {counted(len(rows), 'more row')}"
    )
    dev = MaskedRows(rows)
    if not (output / BASELINE_FILE).is_file():
        options = replace(options, baseline=_baseline(settings, dev))
    return train(settings, packed, {ROWS_NAME: dev}, output, options, inside=(PACKED, ENCODER))


def require_mlm(settings: TrainSettings) -> None:
    """Raise UserError for the settings of another method than masked language modelling."""
    if not isinstance(settings.method, MlmSettings):
        raise UserError(
            f"method.name is {settings.method.name!r}: pretraining needs a recipe of method mlm, "
            "such as mlm-base; train other methods with `cotbert train`"
        )


def _check(settings: TrainSettings, corpus: Corpus, output: Path) -> None:
    """UserError for what needs no reading of the corpus, before anything is written."""
    require_mlm(settings)
    corpus.require_unpacked()
    if not (output / SETTINGS_FILE).is_file():
        require_job_folder(output, (PACKED, ENCODER))
    elif not (output / PACKED).is_dir():  # which a pretraining makes first
        raise UserError(f"output {str(output)!r} holds the files of another job: give a new folder")
    elif (output / RESULT_FILE).is_file():
        raise UserError(f"the pretraining in {str(output)!r} is finished: give a new folder")


def row_capacity(settings: TrainSettings) -> int:
    """Return the number of tokens of a packed row besides special ones; UserError for an encoder
    that takes fewer or cannot be trained by the method."""
    assert isinstance(settings.method, MlmSettings)
    backbone = load_backbone(settings.encoder, attention=settings.attention)
    length, limit = settings.method.packed_length, backbone.max_tokens
    if length > limit:
        raise UserError(
            f"method.packed_length is {length} and the encoder {settings.encoder!r} takes at most "
            f"{limit} tokens: give --set method.packed_length={limit} or less"
        )
    build_method(backbone, settings, initialized=False)
    return length - BoundTemplate.bind(None, backbone.tokenizer.hf).length


def _packing(settings: TrainSettings, corpus: Corpus, *, retokenized: bool) -> Packing:
    """Return how the corpus is packed; UserError for an encoder that cannot read the rows."""
    capacity, tokenizer = row_capacity(settings), load_tokenizer(settings.encoder)
    if not retokenized:
        corpus.check_tokenizer(settings.encoder, tokenizer.hash, 1)
    retokenize = tokenizer if retokenized else None
    return Packing(corpus, capacity, settings.encoder, tokenizer.hash, retokenize)


def _baseline(settings: TrainSettings, dev: MaskedRows) -> Baseline:
    """Return the masked accuracy of the untouched encoder."""
    # bf16 that is meant for the workers' GPUs can take a driver without it 100 times as long.
    precision = "fp32" if settings.precision == "fp32" else "auto"
    backbone = load_backbone(settings.encoder, attention=settings.attention)
    found = dev.score(build_method(backbone, override(settings, {"precision": precision})))
    say(f"baseline: the untouched encoder predicts {found[DEV_MLM_ACCURACY]:.2f} % ({ROWS_NAME})")
    return Baseline(HEAD, None, {}, found)
