"""Models and tokenizers are read from a folder once, and copied whenever they are asked for.

A folder and its copies are one folder, as long as no file changes. A model that draws random
numbers is copied where torch would draw the same ones, which it has then drawn.
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

MOST_BYTES = 250_000_000  # of what is kept of each kind; all-MiniLM-L6-v2 has 90 MB


class Snapshot:
    """An object as a pickle, and its tensors: 7 times as fast as deepcopy."""

    def __init__(self, made: Any, random_state: Any) -> None:
        from torch import Tensor

        self.random_state = random_state  # of torch after loading; None if nothing was drawn
        self.tensors: dict[int, Any] = {}
        self._tensor = Tensor  # not imported in _keep, which is called for each part
        file = io.BytesIO()
        pickler = pickle.Pickler(file, pickle.HIGHEST_PROTOCOL)
        pickler.persistent_id = self._keep  # type: ignore[method-assign]
        pickler.dump(made)
        self.rest = file.getvalue()
        self.bytes = len(self.rest) + sum(tensor.nbytes for tensor in self.tensors.values())

    def _keep(self, part: Any) -> int | None:
        if not isinstance(part, self._tensor):
            return None
        if id(part) not in self.tensors:
            self.tensors[id(part)] = _copied(part)
        return id(part)

    def copy(self) -> Any:
        """The object as it was; what was one tensor is one tensor."""
        copies: dict[int, Any] = {}

        def tensor(number: int) -> Any:
            if number not in copies:
                copies[number] = _copied(self.tensors[number])
            return copies[number]

        unpickler = pickle.Unpickler(io.BytesIO(self.rest))
        unpickler.persistent_load = tensor  # type: ignore[method-assign]
        return unpickler.load()


def _copied(tensor: Any) -> Any:
    import torch

    data = tensor.detach().clone()
    trained = isinstance(tensor, torch.nn.Parameter)
    return torch.nn.Parameter(data, tensor.requires_grad) if trained else data


@contextmanager
def opened_once() -> Iterator[None]:
    """In this block transformers' Auto classes open a folder once."""
    from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoTokenizer

    with ExitStack() as stack:
        for kind in (AutoConfig, AutoModel, AutoModelForMaskedLM, AutoTokenizer):
            opened = _opened_once(kind.from_pretrained)
            stack.enter_context(patch.object(kind, "from_pretrained", opened))
        yield


def _opened_once(load: Callable[..., Any]) -> Callable[..., Any]:
    kept: dict[Any, Snapshot] = {}  # the one that was asked for last at the end
    drawing: set[Any] = set()  # what draws weights: its copy depends on the random state

    def from_pretrained(name: Any, **kwargs: Any) -> Any:
        import torch

        files = _files(Path(name))
        before = torch.get_rng_state()
        key = (*sorted((k, _as_text(v)) for k, v in kwargs.items()), *files)
        key = (key, before.numpy().tobytes() if key in drawing else b"")
        if files and key in kept:
            snapshot = kept[key] = kept.pop(key)
            if snapshot.random_state is not None:
                torch.set_rng_state(snapshot.random_state)
            return _renamed(snapshot.copy(), str(name))
        made = load(name, **kwargs)
        after = torch.get_rng_state()
        if files:
            if not torch.equal(before, after):
                drawing.add(key[0])
                key = (key[0], before.numpy().tobytes())
            kept[key] = Snapshot(made, after if key[1] else None)
            while sum(one.bytes for one in kept.values()) > MOST_BYTES:
                del kept[next(iter(kept))]
        return made

    return from_pretrained


def _as_text(value: Any) -> str:
    """A value of an argument; of a configuration all but its folder, 20 times as fast as str."""
    if hasattr(value, "to_diff_dict"):
        return repr({k: v for k, v in vars(value).items() if k != "_name_or_path"})
    return str(value)


def _renamed(made: Any, name: str) -> Any:
    """A model (perhaps with what loading it has told) or a tokenizer as of this folder."""
    one = made[0] if isinstance(made, tuple) else made
    for part in (one, getattr(one, "config", None)):
        if hasattr(part, "name_or_path"):
            part.name_or_path = name
    return made


def _files(folder: Path) -> list[tuple[Any, ...]]:
    """What changes when a folder's files do; nothing for a name."""
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:  # half as long as with paths
        found = [(one.name, one.stat()) for one in entries if one.is_file() or one.is_dir()]
    return sorted((name, stat.st_size, stat.st_mtime_ns) for name, stat in found)
