"""Where the seconds of a training step go: code names its sections, a clock adds them up.

Without a clock a section is one look at a module's variable. With one, a section's seconds are its
own alone: those of a section inside it are the inner one's, so that all of a step add up to no more
than the step. Backward functions run while the thread that asked for them waits (on a CPU in that
very thread, for a GPU in autograd's own), so one stack of open sections is true for both: what the
backward of a gather takes is "gather", not "backward".
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
    """Seconds by section since the last lap, of one process that enters them one at a time.

    On a GPU every change of section waits for what was given to the device: its work is else
    counted where it is first waited for. A step then does the same with less overlap.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._open: list[Section] = []
        self._begin()

    def _begin(self) -> None:
        self._seconds: dict[Section, float] = {}
        self._lap = self._since = self._now()

    def _now(self) -> float:
        if self._device.type == "cuda":
            # This stream alone: gradients that DDP sends beside it wait for whoever needs them.
            torch.cuda.current_stream(self._device).synchronize()
        return time.perf_counter()

    def enter(self, name: Section) -> None:
        self._charge()
        self._open.append(name)

    def leave(self) -> None:
        self._charge()
        self._open.pop()

    def rename(self, name: Section) -> None:
        """From now on the innermost section is another."""
        self._charge()
        self._open[-1] = name

    def _charge(self) -> None:
        """What has gone by since the last change, to the section that was innermost."""
        now = self._now()
        if self._open:
            name = self._open[-1]
            self._seconds[name] = self._seconds.get(name, 0.0) + now - self._since
        self._since = now

    def lap(self) -> tuple[float, dict[Section, float]]:
        """Seconds since the last lap, and of the sections that were entered in it. Called outside
        of all sections."""
        assert not self._open, self._open
        seconds, sections = self._now() - self._lap, self._seconds
        self._begin()
        return seconds, sections

    def skip(self) -> None:
        """What has gone by since the last lap belongs to none."""
        self._begin()


_clock: Clock | None = None
_NO_SECTION = nullcontext()


def section(name: Section) -> AbstractContextManager[None]:
    """The block's seconds are `name`'s, where a clock runs; a trace shows it under that name."""
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
    """Around a backward pass: once the gradient of every weight is computed, what is left of the
    section is `name`'s; of no weights nothing changes. Under DDP what is left is waiting for the
    other workers' gradients."""
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
    """A clock for all sections of this process, for the length of the block."""
    global _clock
    assert _clock is None, "one clock at a time"
    _clock = Clock(device)
    try:
        yield _clock
    finally:
        _clock = None
