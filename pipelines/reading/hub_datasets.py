"""Data sets of the Hugging Face hub: the input `hf:NAME[:CONFIG][:SPLIT]` (needs the extra `hub`).

NAME is a name on the hub, or a folder that `datasets` saved with save_to_disk. A single part after
the name is the split if it is one of SPLITS or NAME is a folder, otherwise the configuration. The
default split is `train`.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from cotbert_core.errors import UserError, first_line, missing_packages

PREFIX = "hf:"
# Rows per shard, about as much text as in other shards.
SHARD_ROWS = 32_768
SPLITS = ("train", "test", "validation", "dev", "unsupervised")
DEFAULT_SPLIT = "train"


def describe(item: str) -> tuple[int, Any, tuple[str, ...]]:
    """Return (number of rows, pyarrow schema, files) of a data set; UserError if loading fails."""
    dataset = _open(item)
    files = tuple(sorted(str(entry["filename"]) for entry in dataset.cache_files))
    return len(dataset), dataset.features.arrow_schema, files


def rows(item: str, start: int, stop: int) -> Any:
    """Return the rows from `start` to `stop` as a pyarrow table."""
    return _open(item).with_format("arrow")[start:stop]


def parse(item: str) -> tuple[str, str | None, str]:
    """Return (name, configuration or None, split) of `hf:NAME[:CONFIG][:SPLIT]`."""
    name, *more = item.removeprefix(PREFIX).split(":")
    if not name or len(more) > 2 or not all(more):
        raise UserError(
            f"input {item!r} is not a data set: write hf:NAME, hf:NAME:SPLIT or "
            "hf:NAME:CONFIG:SPLIT"
        )
    if len(more) == 1:
        is_split = more[0] in SPLITS or Path(name).is_dir()
        return (name, None, more[0]) if is_split else (name, more[0], DEFAULT_SPLIT)
    return name, (more[0] if more else None), (more[1] if more else DEFAULT_SPLIT)


def absolute(item: str) -> str:
    """Return the item with the absolute path of its folder, if it names one: workers have another
    current folder."""
    name, *more = item.removeprefix(PREFIX).split(":")
    is_folder = name and Path(name).is_dir()
    return PREFIX + ":".join([str(Path(name).absolute()), *more]) if is_folder else item


def _open(item: str) -> Any:
    """Return a data set as it is on the disk now: a program may save another one in its folder."""
    folder = Path(parse(item)[0])
    states = [*folder.glob("state.json"), *sorted(folder.glob("*/state.json"))]
    return _opened(item, tuple(state.stat().st_mtime_ns for state in states))


@lru_cache(maxsize=4)  # a worker reads many shards of a data set
def _opened(item: str, times: tuple[int, ...]) -> Any:
    try:
        import datasets
    except ImportError:
        raise missing_packages(f"input {item!r}", ["datasets"], "hub") from None
    name, config, split = parse(item)
    datasets.disable_progress_bars()
    try:
        if Path(name).is_dir():
            return _saved(item, datasets.load_from_disk(name), split)
        return datasets.load_dataset(name, config, split=split)
    except UserError:
        raise
    except Exception as error:  # hub, network and format raise errors of many types
        raise UserError(
            f"input {item!r} cannot be loaded ({first_line(error)[:200]}): check its name, "
            "configuration, split and the connection to the hub, or give a folder saved by "
            "save_to_disk"
        ) from None


def _saved(item: str, saved: Any, split: str) -> Any:
    """Return the split of a saved folder; a single saved data set has at most a name of its own."""
    if not isinstance(saved, dict):
        if split not in (DEFAULT_SPLIT, str(saved.split)):
            raise UserError(
                f"input {item!r} has no split {split!r}: it is a single data set; leave out the "
                "split"
            )
        return saved
    if split not in saved:
        raise UserError(f"input {item!r} has no split {split!r}: it has {', '.join(saved)}")
    return saved[split]
