"""Two engines that run a Marian model on token ids: transformers, and CTranslate2 for CPUs.

With greedy search both give the same translations. With a beam a few differ, since the engines have
different stopping rules; with sampling all differ, since each has its own random generator.
"""

from __future__ import annotations

import math
import os
import shutil
from importlib import metadata, util
from pathlib import Path
from typing import Any

from cotbert_core.errors import UserError, first_line, require_packages
from pipelines.augmenting.marian import MarianModel, load_tokenizer
from pipelines.augmenting.options import BackTranslation, EngineName, TranslationPrecision
from pipelines.storage.paths import cache_folder

Ids = list[list[int]]
# Extra tokens of a translation: that of one or two tokens may be much longer than its source.
SPARE_TOKENS = 8


def choose_engine(
    engine: EngineName, precision: TranslationPrecision, gpu: bool
) -> tuple[EngineName, TranslationPrecision]:
    """Return engine and precision with `auto` resolved; UserError for an unsupported pair.

    gpu: whether the workers have GPUs. `auto` is CTranslate2 if it is installed and there are no
    GPUs; its precision is int8 with CTranslate2, otherwise the device's fastest number format.
    """
    installed = util.find_spec("ctranslate2") is not None
    if engine == "ctranslate2":
        require_packages("engine ctranslate2", ["ctranslate2"], "ctranslate2")
    if engine == "auto":
        engine = "ctranslate2" if installed and not gpu else "transformers"
    formats: list[TranslationPrecision] = ["int8", "float32"]
    if engine == "transformers":
        formats = ["float16", "float32"] if gpu else ["float32"]
    if precision == "auto":
        return engine, formats[0]
    if precision not in formats:
        raise UserError(
            f"precision is {precision!r}: with {engine} on a {'GPU' if gpu else 'CPU'} give "
            f"{' or '.join(formats)}"
        )
    return engine, precision


def load_engine(model: MarianModel, options: BackTranslation, threads: int) -> Engine:
    """Return the engine that `options` name (not `auto`), for one direction."""
    if options.engine == "ctranslate2":
        return CTranslate2Engine(model, options, threads)
    return TransformersEngine(model, options, threads)


def most_tokens(ids: Ids, options: BackTranslation) -> int:
    """Return the maximum number of output tokens, computed from the longest row."""
    return math.ceil(options.max_length_factor * max(map(len, ids))) + SPARE_TOKENS


class TransformersEngine:
    """MarianMTModel.generate on this process's device."""

    def __init__(self, model: MarianModel, options: BackTranslation, threads: int) -> None:
        import torch
        from transformers.utils import logging

        from cotbert_core.encoder.threads import set_threads
        from cotbert_core.training.devices import current_device

        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        set_threads(threads)
        self._options = options
        self._device = current_device()
        if options.precision == "float16" and self._device.type == "cpu":
            raise UserError(
                "precision is float16, for GPUs, and this worker's torch finds no GPU: "
                "install torch with CUDA on every node, or give --precision float32"
            )
        self._model = load_weights(model, getattr(torch, options.precision))
        self._model = self._model.to(self._device).eval()
        # A length in the model's generation config would override the given one.
        self._model.generation_config.max_length = None
        self._pad = int(self._model.config.pad_token_id)
        self._positions = int(self._model.config.max_position_embeddings) - 1
        self._search: dict[str, Any] = {"num_beams": options.beam, "do_sample": False}
        if options.samples:
            sampling = {"temperature": options.temperature, "top_k": options.top_k}
            self._search = {"num_beams": 1, "do_sample": True, **sampling}

    def translate(self, ids: Ids, seed: int) -> Ids:
        import torch
        from torch.nn.utils.rnn import pad_sequence

        from cotbert_core.encoder.attention import without_cudnn

        rows = [torch.tensor(row) for row in ids]
        batch = pad_sequence(rows, batch_first=True, padding_value=self._pad)
        mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        torch.manual_seed(seed)
        with torch.inference_mode(), without_cudnn(self._device):
            output = self._model.generate(
                input_ids=batch.to(self._device),
                attention_mask=mask.to(self._device),
                max_new_tokens=min(most_tokens(ids, self._options), self._positions),
                **self._search,
            )
        return [[i for i in row if i != self._pad] for row in output.tolist()]


class CTranslate2Engine:
    """A model converted to CTranslate2, on CPU cores."""

    def __init__(self, model: MarianModel, options: BackTranslation, threads: int) -> None:
        self._options, self._threads = options, threads
        self._folder = converted(model, options.precision)
        self._tokenizer = load_tokenizer(model)
        self._positions = int(self._tokenizer.model_max_length) - 1
        self._translator = self._load()
        self._search: dict[str, Any] = {"beam_size": options.beam}
        if options.samples:
            self._search = {"beam_size": 1, "sampling_temperature": options.temperature}
            self._search["sampling_topk"] = options.top_k

    def _load(self) -> Any:
        import ctranslate2

        return ctranslate2.Translator(
            str(self._folder),
            device="cpu",
            compute_type=self._options.precision,
            inter_threads=1,
            intra_threads=self._threads,
        )

    def translate(self, ids: Ids, seed: int) -> Ids:
        if self._options.samples:
            import ctranslate2

            # Each thread of a translator has a random generator, seeded when it first samples, so
            # each call makes a new translator (0.2 s for an opus-mt model) with a new thread.
            ctranslate2.set_random_seed(seed)
            self._translator = self._load()
        results = self._translator.translate_batch(
            [self._tokenizer.convert_ids_to_tokens(row) for row in ids],
            max_decoding_length=min(most_tokens(ids, self._options), self._positions),
            max_input_length=0,
            **self._search,
        )
        return [self._tokenizer.convert_tokens_to_ids(r.hypotheses[0]) for r in results]


Engine = TransformersEngine | CTranslate2Engine


def load_weights(model: MarianModel, dtype: Any) -> Any:
    """Return the transformers model; UserError if its weights cannot be read or are incomplete.

    transformers would give random values to weights that the file lacks, such as a whole decoder.
    """
    from transformers import MarianMTModel

    model_class: Any = MarianMTModel
    try:
        loaded, found = model_class.from_pretrained(
            model.folder, dtype=dtype, local_files_only=True, output_loading_info=True
        )
    except Exception as error:  # a broken file can raise errors of many types
        raise UserError(
            f"the weights of {model.name!r} cannot be read ({first_line(error)}): copy the folder "
            "again"
        ) from None
    # The bias of the output is zero in a file without it.
    if missing := sorted(key for key in found["missing_keys"] if key.startswith("model.")):
        raise UserError(
            f"{model.name!r} lacks {len(missing)} of its weights, such as {missing[0]!r}: copy the "
            "whole folder again"
        )
    return loaded


def converted(model: MarianModel, precision: str) -> Path:
    """Return the model's CTranslate2 folder, converted once into this machine's cache folder."""
    version = metadata.version("ctranslate2").split(".")[0]
    made = cache_folder() / "ctranslate2" / f"{model.digest}-{precision}-{version}"
    if (made / "model.bin").is_file():
        return made
    import torch
    from ctranslate2.converters import TransformersConverter

    load_weights(model, torch.float32)  # the converter does not say which weights are missing
    partial = made.with_name(f"{made.name}.{os.getpid()}.partial")
    made.parent.mkdir(parents=True, exist_ok=True)
    try:
        TransformersConverter(model.folder).convert(
            str(partial), quantization=None if precision == "float32" else precision, force=True
        )
        # Another worker on this machine may have converted it meanwhile.
        if not made.exists():
            partial.rename(made)
    except (RuntimeError, ValueError, OSError, KeyError) as error:
        if not (made / "model.bin").is_file():
            raise UserError(
                f"model {model.name!r} cannot be converted for CTranslate2 ({error}): give "
                "--engine transformers"
            ) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return made
