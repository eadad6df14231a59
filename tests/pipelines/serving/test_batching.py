"""Joining the texts of requests into batches: whose texts are in which batch, in which order."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from pipelines.serving import batching
from pipelines.serving.batching import Batcher, Batching


class Encoder:
    """Encodes a text to its length, and keeps the batches; the first ones wait for `gate`."""

    def __init__(self):
        self.batches, self.gate = [], asyncio.Event()
        self.running = self.most = 0
        self.error = None

    async def __call__(self, texts):
        self.batches.append(texts)
        self.running += 1
        self.most = max(self.most, self.running)
        await self.gate.wait()
        self.running -= 1
        if self.error:
            raise self.error
        lengths = np.asarray([len(text) for text in texts])
        return lengths[:, None].astype(np.float32), lengths


def with_batcher(**changes):
    """Decorate a coroutine of an encoder and a batcher that is running, as a test."""
    given = {"batch_tokens": 9, "max_tokens": 100, "template_tokens": 2, **changes}
    given = {"wait_seconds": 0.0, "concurrent": 1, **given}

    def decorate(coroutine):
        async def run():
            encoder = Encoder()
            batcher = Batcher(encoder, Batching(**given), asyncio.Semaphore(given["concurrent"]))
            running = asyncio.create_task(batcher.run())
            try:
                await asyncio.wait_for(coroutine(encoder, batcher), 10)
            finally:
                running.cancel()

        def test():
            asyncio.run(run())

        return test

    return decorate


@pytest.fixture(autouse=True)
def long_pause(monkeypatch):
    monkeypatch.setattr(batching, "PAUSE_SECONDS", 0.1)


async def settle():
    for _ in range(20):
        await asyncio.sleep(0)


# Each of these texts counts as 3 tokens.
def texts(letter, count):
    return [letter * 4 + str(number) for number in range(count)]


@with_batcher()
async def test_requests_that_wait_are_joined(encoder, batcher):
    first = asyncio.create_task(batcher.embed(["a"]))
    await settle()
    others = [asyncio.create_task(batcher.embed([t])) for t in ("bb", "ccc", "dddd")]
    await settle()
    assert encoder.batches == [["a"]]
    encoder.gate.set()
    found = await asyncio.gather(first, *others)
    assert encoder.batches == [["a"], ["bb", "ccc", "dddd"]]
    assert [(v.tolist(), n) for v, n in found] == [([[float(n)]], n) for n in (1, 2, 3, 4)]


@with_batcher(wait_seconds=1000.0)
async def test_an_idle_encoder_waits_while_texts_arrive_and_no_longer(encoder, batcher):
    encoder.gate.set()
    jobs = []
    for letter in "abc":
        jobs.append(asyncio.create_task(batcher.embed([letter])))
        await settle()
    await asyncio.gather(*jobs)
    assert encoder.batches == [["a", "b", "c"]]
    await batcher.embed(["alone"])  # within 10 seconds, not 1,000


@with_batcher()
async def test_a_long_request_does_not_delay_a_short_one(encoder, batcher):
    encoder.gate.set()
    long = asyncio.create_task(batcher.embed(texts("a", 30)))
    while not encoder.batches:
        await asyncio.sleep(0)
    begun = len(encoder.batches)
    await batcher.embed(["b"])
    assert len(encoder.batches) <= begun + 2
    assert not long.done()
    vectors, tokens = await long
    assert (vectors.ravel() == [len(t) for t in texts("a", 30)]).all()
    assert tokens == sum(map(len, texts("a", 30)))


@with_batcher(wait_seconds=0.01)
async def test_waiting_requests_have_equal_shares(encoder, batcher):
    jobs = [asyncio.create_task(batcher.embed(texts(letter, 4))) for letter in "abc"]
    encoder.gate.set()
    await asyncio.gather(*jobs)
    assert sorted(text[0] for text in encoder.batches[0]) == ["a", "b", "c"]
    assert all(len(batch) <= 3 for batch in encoder.batches)
    assert sorted(t for batch in encoder.batches for t in batch) == sorted(
        t for letter in "abc" for t in texts(letter, 4)
    )


@with_batcher()
async def test_a_text_longer_than_a_batch_is_a_batch_of_its_own(encoder, batcher):
    encoder.gate.set()
    await batcher.embed(["x" * 10_000, "y"])
    assert encoder.batches == [["x" * 10_000], ["y"]]


@with_batcher(batch_tokens=40, max_tokens=24, template_tokens=16, wait_seconds=0.01)
async def test_the_template_and_each_chinese_letter_count(encoder, batcher):
    """4 tokens and a template of 16 are 20, and the most, 24, are 40 with it."""
    for text, most in (("a" * 16, 2), ("你好吗呀", 2), ("a" * 99, 1), ("你" * 99, 1)):
        encoder.gate.set()
        encoder.batches.clear()
        await batcher.embed([text] * 4)
        assert max(map(len, encoder.batches)) == most, text


@with_batcher(concurrent=2)
async def test_no_more_batches_run_at_a_time_than_are_allowed(encoder, batcher):
    jobs = [asyncio.create_task(batcher.embed(texts("a", 9))) for _ in range(3)]
    await settle()
    encoder.gate.set()
    await asyncio.gather(*jobs)
    assert encoder.most == 2


@with_batcher()
async def test_a_request_that_is_given_up_is_not_encoded(encoder, batcher):
    jobs = []
    for text in ("a", "gone"):
        jobs.append(asyncio.create_task(batcher.embed([text])))
        await settle()
    jobs[1].cancel()
    await settle()
    encoder.gate.set()
    await jobs[0]
    await batcher.embed(["b"])
    assert encoder.batches == [["a"], ["b"]]


@with_batcher()
async def test_an_error_reaches_the_requests_of_its_batch_alone(encoder, batcher):
    encoder.gate.set()
    encoder.error = RuntimeError("the replica died")
    jobs = [asyncio.create_task(batcher.embed([t])) for t in ("a", "b")]
    for job in jobs:
        with pytest.raises(RuntimeError, match="the replica died"):
            await job
    encoder.error = None
    vectors, _ = await batcher.embed(["ccc"])
    assert vectors.tolist() == [[3.0]]
