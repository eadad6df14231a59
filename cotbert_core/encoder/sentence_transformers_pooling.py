"""The pooling described by the modules of a sentence-transformers folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cotbert_core.errors import UserError
from cotbert_core.files import part_of, read_json, read_object

# The files of a Transformer module: versions before 2.0 named them after the family.
_FAMILIES = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
# What these files can pass on to transformers, which changes how texts are read.
_PASSED_ON = (
    *("tokenizer_args", "processor_kwargs", "processing_kwargs"),
    *("config_args", "config_kwargs"),
)
POOLING_MODES = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean"}
_INSTEAD = (
    "copy the folder without modules.json, which is then read by mean pooling, or encode with "
    "sentence-transformers"
)
# This package writes such a module for a model with a template, beside the cotbert.json that this
# folder lacks.
_SAVED_AGAIN = (
    "if sentence-transformers has saved a model of cotbert again, give the folder that cotbert "
    "wrote, and in any case sentence-transformers can encode with this one"
)


def sentence_transformers_pooling(folder: Path) -> dict[str, Any]:
    """Return readout, max_length and normalize of a sentence-transformers folder.

    include_prompt is False if the mean leaves out the tokens of a prompt (Instructor).
    """
    pooling: dict[str, Any] = {}
    for module in _modules(folder / "modules.json"):
        kind = module["type"].rsplit(".", 1)[-1]
        if kind == "Transformer":
            # sentence-transformers 6 stores the limit with the tokenizer; 1e30 means no limit.
            file, values = transformer_settings(folder)
            if passed := [key for key in _PASSED_ON if values.get(key)]:
                raise UserError(
                    f"{str(file)!r} sets {passed[0]}, which is not supported: encode with "
                    "sentence-transformers, or take it out of a copy of the folder"
                )
            limit = _limit(file, values, "max_seq_length")
            file = folder / "tokenizer_config.json"
            limit = limit or _limit(file, _object(file), "model_max_length")
            # That limit includes [CLS] and [SEP]; max_length does not.
            pooling["max_length"] = limit - 2 if limit and limit < 1e30 else None
        elif kind == "Pooling":
            file = part_of(folder, f"{module['path']}/config.json")
            values = read_object(file)
            pooling["readout"] = _pooling_mode(file, values)
            if values.get("include_prompt") is False:
                pooling["include_prompt"] = False
        elif kind == "Normalize":
            pooling["normalize"] = True
        else:
            instead = _SAVED_AGAIN if kind == "WordWeights" else _INSTEAD
            raise UserError(
                f"encoder {str(folder)!r} has a {kind} module, which is not supported: {instead}"
            )
    return pooling


def _modules(file: Path) -> list[dict[str, str]]:
    """Return the entries of modules.json; UserError unless each has a type and a path inside."""
    modules = read_json(file)
    if not isinstance(modules, list):
        raise UserError(f"{str(file)!r} is not a list of modules: copy the folder again")
    for module in modules:
        texts = module if isinstance(module, dict) else {}
        if not all(isinstance(texts.get(key), str) for key in ("type", "path")):
            raise UserError(
                f"{str(file)!r} has a module without a type and a path: copy the folder again"
            )
        part_of(file.parent, module["path"])
    return modules


def _pooling_mode(config: Path, values: Mapping[str, Any]) -> str:
    modes = [mode for key, mode in POOLING_MODES.items() if values.get(key)]
    named = values.get("pooling_mode")
    modes += [named] if isinstance(named, str) and named in POOLING_MODES.values() else []
    others = [k for k, v in values.items() if k.startswith("pooling_mode_") and v is True]
    if len(modes) != 1 or len(others) > 1:
        raise UserError(
            f"{str(config)!r} has a pooling mode other than cls or mean, which is not supported: "
            f"{_INSTEAD}"
        )
    return modes[0]


def transformer_settings(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Return the file of the Transformer module in a folder, and its values; none if it is absent.

    As in sentence-transformers, the first file that has any values is read.
    """
    files = [folder / f"sentence_{family}_config.json" for family in _FAMILIES]
    found = ((file, _object(file)) for file in files)
    return next(((file, values) for file, values in found if values), (files[0], {}))


def _object(path: Path) -> dict[str, Any]:
    """Return the values of a JSON file; none if it is absent."""
    return read_object(path) if path.is_file() else {}


def _limit(path: Path, values: Mapping[str, Any], key: str) -> int | None:
    """Return a file's limit in tokens, including special tokens; None if it has no limit."""
    value = values.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 3:
        raise invalid_value(path, key, value)
    return int(min(value, 1e30))


def invalid_value(file: Path, name: str, value: Any) -> UserError:
    shown = repr(value) if isinstance(value, str | int | float | bool | None) else "a value"
    return UserError(
        f"{str(file)!r} gives {name} as {shown[:80]}, which is not a valid value: copy the folder "
        "again from where it was made"
    )
