"""Join the texts of waiting requests into batches, and split long requests among several.

docs/serving.md says why not by Ray Serve's own `serve.batch`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

# For estimates: an English token has 4 to 5 characters, and a Chinese one has 1 or 2.
CHARACTERS_PER_TOKEN = 4
# Pause while gathering texts; a request of one sentence takes about a millisecond to parse.
PAUSE_SECONDS = 0.002
Encode = Callable[[list[str]], Awaitable[tuple[np.ndarray, np.ndarray]]]


@dataclass
class Job:
    """The texts of a request.

    answer: (N, D) vectors and the number of tokens. taken: number of texts put into batches. parts:
    finished results by index of their first text.
    """

    texts: Sequence[str]
    answer: asyncio.Future[tuple[np.ndarray, int]]
    taken: int = 0
    parts: dict[int, tuple[np.ndarray, int]] = field(default_factory=dict)

    def finish_part(self, start: int, vectors: np.ndarray, tokens: int) -> None:
        self.parts[start] = vectors, tokens
        done = sum(len(part) for part, _ in self.parts.values())
        if done == len(self.texts) and not self.answer.done():
            ordered = [self.parts[place] for place in sorted(self.parts)]
            whole = np.concatenate([part for part, _ in ordered])
            self.answer.set_result((whole, sum(number for _, number in ordered)))

    def fail(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


@dataclass(frozen=True)
class Part:
    """The texts start..stop-1 of a job."""

    job: Job
    start: int
    stop: int

    @property
    def texts(self) -> Sequence[str]:
        return self.job.texts[self.start : self.stop]


@dataclass(frozen=True)
class Batching:
    """The sizes of batches.

    batch_tokens: tokens of a batch, about. max_tokens: the model's maximum length of a text,
    without its template. template_tokens: number of tokens that the longest template adds to a
    text. wait_seconds: maximum time that an idle encoder waits for more texts. concurrent: number
    of batches that are encoded at a time, queries and other texts together.
    """

    batch_tokens: int
    max_tokens: int
    template_tokens: int
    wait_seconds: float
    concurrent: int


class Batcher:
    """Run `encode` on batches.

    encode: returns (N, D) vectors and (N,) token numbers of N texts. free: counts the batches that
    may still start; batchers of the same encoder share it.
    """

    def __init__(self, encode: Encode, batching: Batching, free: asyncio.Semaphore) -> None:
        self._encode, self._batching = encode, batching
        self._jobs: deque[Job] = deque()
        self._arrivals = 0
        self._arrived = asyncio.Event()
        self._free = free
        self._running: set[asyncio.Task[None]] = set()

    async def embed(self, texts: Sequence[str]) -> tuple[np.ndarray, int]:
        """Return (N, D) vectors of N > 0 texts, and their number of tokens.

        If the caller is cancelled, texts that are not in a batch yet are dropped.
        """
        job = Job(texts, asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        self._arrivals += 1
        self._arrived.set()
        return await job.answer

    async def run(self) -> None:
        """Start batches until cancelled."""
        try:
            while True:
                await self._arrived.wait()
                idle = not self._free.locked()
                await self._free.acquire()
                if idle:  # otherwise texts have had time to arrive
                    await self._gather()
                self._start(self.take())
        finally:
            for task in self._running:
                task.cancel()

    async def _gather(self) -> None:
        """Wait while texts keep arriving, at most wait_seconds.

        Clients whose texts were encoded together send their next ones within milliseconds; a single
        client waits for only one pause.
        """
        loop = asyncio.get_running_loop()
        end, known = loop.time() + self._batching.wait_seconds, -1
        while known != self._arrivals and loop.time() < end:
            known = self._arrivals
            await asyncio.sleep(PAUSE_SECONDS)

    def take(self) -> list[Part]:
        """Return the next batch, filled with equal shares of the jobs in turn.

        An unfinished job goes to the end of the queue, so a short request waits for about one batch
        however long the others are.
        """
        room, parts = self._batching.batch_tokens, list[Part]()
        share = max(1, room // max(1, len(self._jobs)))
        while self._jobs and room > 0:
            job = self._jobs.popleft()
            if job.answer.done():  # cancelled or failed
                continue
            part, tokens = self._cut(job, min(share, room))
            parts.append(part)
            room -= tokens
            if job.taken < len(job.texts):
                self._jobs.append(job)
        if not self._jobs:
            self._arrived.clear()
        return parts

    def _cut(self, job: Job, room: int) -> tuple[Part, int]:
        """Return the next texts of a job, at least one, and their approximate number of tokens."""
        start, tokens = job.taken, 0
        while job.taken < len(job.texts):
            more = self._tokens(job.texts[job.taken])
            if tokens and tokens + more > room:
                break
            tokens += more
            job.taken += 1
        return Part(job, start, job.taken), tokens

    def _tokens(self, text: str) -> int:
        """Return a text's approximate number of tokens, one for each character besides ASCII."""
        most = self._batching.max_tokens
        read = text[: CHARACTERS_PER_TOKEN * most]
        ascii_characters = len(read.encode("ascii", "ignore"))
        tokens = ascii_characters // CHARACTERS_PER_TOKEN + len(read) - ascii_characters
        return min(tokens, most) + self._batching.template_tokens

    def _start(self, parts: list[Part]) -> None:
        if not parts:
            self._free.release()
            return
        task = asyncio.create_task(self._finish(parts))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _finish(self, parts: list[Part]) -> None:
        """Encode a batch and give each job its part, or the error."""
        try:
            vectors, tokens = await self._encode([text for part in parts for text in part.texts])
            start = 0
            for part in parts:
                stop = start + len(part.texts)
                part.job.finish_part(part.start, vectors[start:stop], int(tokens[start:stop].sum()))
                start = stop
        except Exception as error:
            for part in parts:
                part.job.fail(error)
        finally:
            self._free.release()
