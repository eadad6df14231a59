"""Time the sections of a training step: code marks sections, and a clock sums their seconds.

Without a clock a section only reads a module variable. The seconds of a section exclude those of
nested sections, so all sections of a step sum to at most the step. Backward functions run while the
thread that called backward waits (on a CPU in the same thread, on a GPU in autograd's thread), so a
single stack of open sections is correct for both: the backward pass of a gather counts as "gather",
not as "backward".
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.autograd.graph import register_multi_grad_hook
from torch.profiler import record_function

Section = Literal[
    "data wait",
    "forward",
    "bias rows",
    "decoder",
    "loss",
    "backward",
    "gather",
    "optimizer",
    "dev check",
    "checkpoint",
]
SECTIONS: tuple[Section, ...] = get_args(Section)


class Clock:
    """The seconds of each section since the last lap, in a process with one active section.

    On a GPU every change of section waits for the device; otherwise its work would count in the
    section that first waits for it. This reduces the overlap of host and device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._open: list[Section] = []
        self.skip()

    def skip(self) -> None:
        """Begin a lap; the seconds since the last one count nowhere."""
        self._seconds: dict[Section, float] = {}
        self._lap = self._since = self._now()

    def _now(self) -> float:
        if self._device.type == "cuda":
            # Only this stream, not the one in which DDP sends gradients.
            torch.cuda.current_stream(self._device).synchronize()
        return time.perf_counter()

    def enter(self, name: Section) -> None:
        self._charge()
        self._open.append(name)

    def leave(self) -> None:
        self._charge()
        self._open.pop()

    def rename(self, name: Section) -> None:
        """End the innermost section and continue as another."""
        self._charge()
        self._open[-1] = name

    def _charge(self) -> None:
        """Add the seconds since the last change to the innermost section."""
        now = self._now()
        if self._open:
            name = self._open[-1]
            self._seconds[name] = self._seconds.get(name, 0.0) + now - self._since
        self._since = now

    def lap(self) -> tuple[float, dict[Section, float]]:
        """Return the seconds since the last lap and of each section; call it outside sections."""
        assert not self._open, self._open
        seconds, sections = self._now() - self._lap, self._seconds
        self.skip()
        return seconds, sections


_clock: Clock | None = None
_NO_SECTION = nullcontext()


def section(name: Section) -> AbstractContextManager[None]:
    """Count the block's seconds as `name` if a clock runs, and name the block in traces."""
    return _NO_SECTION if _clock is None else _clocked(_clock, name)


@contextmanager
def _clocked(clock: Clock, name: Section) -> Iterator[None]:
    with record_function(name):
        clock.enter(name)
        try:
            yield
        finally:
            clock.leave()


@contextmanager
def section_after_gradients(weights: Sequence[Tensor], name: Section) -> Iterator[None]:
    """Count the rest of a backward pass as `name` once all gradients of `weights` are computed.

    With DDP the rest is waiting for the gradients of the other workers. Without weights nothing
    changes.
    """
    if _clock is None or not weights:
        yield
        return
    clock = _clock
    handle = register_multi_grad_hook(weights, lambda _: clock.rename(name), mode="all")
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def clocked_sections(device: torch.device) -> Iterator[Clock]:
    """Yield a clock that times all sections of this process in this block."""
    global _clock
    assert _clock is None, "one clock at a time"
    _clock = Clock(device)
    try:
        yield _clock
    finally:
        _clock = None
