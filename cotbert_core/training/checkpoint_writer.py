"""Write checkpoints in the background while the training continues.

A checkpoint of BERT-base is 1.3 GB, and writing it to a disk takes 2 to 6 seconds: on a GPU as long
as dozens of steps. On a GPU the state is therefore copied into the host's memory, which stops the
training for a fraction of a second, and a thread writes the copy. On a CPU the thread would take a
core from the steps, so the checkpoint is written before the next step starts.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cotbert_core.training.checkpoints import Checkpoint, check_attempt, write_checkpoint


class CheckpointWriter:
    """Write the checkpoints of an attempt, one at a time.

    attempt: the attempt's name, from `begin_attempt`. background: whether to write in a thread; the
    state may change as soon as `write` returns.
    """

    def __init__(self, folder: Path, attempt: str | None, *, background: bool) -> None:
        self._folder, self._attempt, self._background = folder, attempt, background
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[Checkpoint] | None = None

    def write(self, step: int, score: float, state: dict[str, Any]) -> None:
        """Write a checkpoint, or start to write it in the background.

        Raises the OSError and SupersededError of `write_checkpoint`; in the background `wait`
        raises them. Call `wait` before the next `write`, so that there is one copy at a time.
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
        """Raise SupersededError if another attempt of the run has begun."""
        check_attempt(self._folder, self._attempt)

    def wait(self) -> None:
        """Wait until the checkpoint is written, and raise the error if that failed."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()


def host_copy(state: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a state with all tensors on the CPU, which later steps do not change.

    Tied weights, which are the same tensor, are copied once. Tensors on a GPU are copied into
    pinned memory, all at once.
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
