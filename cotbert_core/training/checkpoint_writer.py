"""Checkpoints written beside the training.

A checkpoint of BERT-base is 1.3 GB, and writing it to a disk takes 2 to 6 seconds: on a GPU as long
as dozens of steps. There the state is copied into the host's memory, which stops the training for
a fraction of a second, and a thread writes the copy. On a CPU the thread would take a core from the
steps, so the checkpoint is written before the next step begins.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cotbert_core.training.checkpoints import Checkpoint, check_attempt, write_checkpoint


class CheckpointWriter:
    """Writes the checkpoints of one attempt, one after the other.

    attempt: name of the attempt, from `begin_attempt`. background: write in a thread; the state
    may change as soon as `write` returns.
    """

    def __init__(self, folder: Path, attempt: str | None, *, background: bool) -> None:
        self._folder, self._attempt, self._background = folder, attempt, background
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[Checkpoint] | None = None

    def write(self, step: int, score: float, state: dict[str, Any]) -> None:
        """Write a checkpoint, or begin to in the background.

        Raises OSError and SupersededError of `write_checkpoint`, in the background from `wait`.
        Whatever was begun before must have been waited for, so that there is one copy at a time.
        """
        if self._pending is not None:
            raise RuntimeError("a checkpoint is still being written: wait for it first")
        if not self._background:
            write_checkpoint(self._folder, step, score, state, self._attempt)
            return
        copied = host_copy(state)
        self._pending = self._pool.submit(
            write_checkpoint, self._folder, step, score, copied, self._attempt
        )

    def check_attempt(self) -> None:
        """Raise SupersededError when another attempt of the run has begun."""
        check_attempt(self._folder, self._attempt)

    def wait(self) -> None:
        """Wait until nothing is being written; raise the error of what was."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()


def host_copy(state: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a state that later steps do not change, its tensors on the CPU.

    Tensors that are one and the same (tied weights) are copied once. Those on a GPU go into pinned
    memory, all at once.
    """
    copies: dict[tuple[Any, ...], Tensor] = {}

    def copied(value: Any) -> Any:
        if isinstance(value, Tensor):
            place = (value.device, value.data_ptr(), value.dtype, value.shape, value.stride())
            if place not in copies:
                copies[place] = _copied_tensor(value)
            return copies[place]
        if isinstance(value, dict):
            return {key: copied(part) for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(copied(part) for part in value)
        return value

    result: dict[str, Any] = copied(state)
    for device in {place[0] for place in copies if place[0].type == "cuda"}:
        torch.cuda.synchronize(device)
    return result


def _copied_tensor(tensor: Tensor) -> Tensor:
    if not tensor.is_cuda:
        return tensor.detach().clone()
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return host.copy_(tensor.detach(), non_blocking=True)
