"""Pieces of inference beside each other: the same results, and the caller's threads after."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from cotbert_core.encoder.threads import keep_threads_started, map_threads, set_threads
from cotbert_core.sentence_encoder import SentenceEncoder


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def modes(_item):
    return (
        threading.current_thread().name,
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_num_threads(),
    )


def test_each_piece_has_the_callers_modes_and_one_thread(two_threads):
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        rows = map_threads(modes, range(8))
    assert {row[1:] for row in rows} == {(False, True, True, 1)}
    assert threading.current_thread().name not in {row[0] for row in rows}
    with torch.no_grad():
        assert {row[1:] for row in map_threads(modes, range(8))} == {(False, False, False, 1)}
    assert torch.get_num_threads() == 2


def test_one_piece_is_done_where_the_caller_is_on_all_threads(two_threads):
    name, *_, threads = map_threads(modes, [0])[0]
    assert (name, threads) == (threading.current_thread().name, 2)


def test_results_come_in_order_and_a_fault_is_raised_with_the_threads_put_back(two_threads):
    assert map_threads(lambda n: n * n, range(50)) == [n * n for n in range(50)]
    with pytest.raises(ZeroDivisionError):
        map_threads(lambda n: 1 // n, [1, 2, 0, 3])
    assert torch.get_num_threads() == 2
    fresh = []
    thread = threading.Thread(target=lambda: fresh.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert fresh == [2], "a thread begun later has them too"


@pytest.mark.parametrize("precision", ["fp32", "auto"])
def test_vectors_are_those_of_one_thread(two_threads, bert_folder, precision):
    encoder = SentenceEncoder.from_pretrained(bert_folder)
    sentences = [f"A man {'walks ' * n}on the stage" for n in range(40)]
    beside = encoder.encode(sentences, batch_tokens=64, precision=precision)
    torch.set_num_threads(1)
    alone = encoder.encode(sentences, batch_tokens=64, precision=precision)
    assert (beside == alone).all()


def test_several_threads_may_encode_at_once(two_threads, bert_folder):
    encoder = SentenceEncoder.from_pretrained(bert_folder)
    batches = [[f"A man {'walks ' * (n + k)}there" for n in range(30)] for k in range(8)]
    expected = [encoder.encode(batch, batch_tokens=64, precision="fp32") for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda b: encoder.encode(b, 64, precision="fp32"), batches))
    assert all((here == there).all() for here, there in zip(found, expected, strict=True))
    assert torch.get_num_threads() == 2


def test_several_threads_may_open_the_first_encoder(bert_folder):
    """All of them import transformers."""
    opening = """
import sys
from concurrent.futures import ThreadPoolExecutor
from cotbert_core import SentenceEncoder
with ThreadPoolExecutor(2) as pool:
    list(pool.map(SentenceEncoder.from_pretrained, sys.argv[1:] * 2))
"""
    subprocess.run([sys.executable, "-c", opening, bert_folder], check=True)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, 2),
        ({"OMP_THREAD_LIMIT": "1"}, 1),
        ({"OMP_THREAD_LIMIT": " 8 "}, 2),
        ({"OMP_THREAD_LIMIT": "many", "OMP_DYNAMIC": "false"}, 2),
        ({"OMP_DYNAMIC": "TRUE"}, 1),
    ],
)
def test_torch_gets_no_more_threads_than_openmp_starts(
    two_threads, monkeypatch, variables, expected
):
    for name in ("OMP_THREAD_LIMIT", "OMP_DYNAMIC"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    keep_threads_started()
    assert torch.get_num_threads() == expected
    set_threads(2)
    assert torch.get_num_threads() == expected


# Freed memory is not 0, so a part that is not computed is seen.
LIMITED = """
import sys, numpy, torch
from cotbert_core.sentence_encoder import SentenceEncoder
encoder = SentenceEncoder.from_pretrained(sys.argv[1])
texts = ["dog number 3 runs"]
right = encoder.encode(texts, precision="fp32")
for _ in range(20):
    [torch.full((n,), 1e30) for n in range(50, 2000, 50)]
    assert numpy.abs(encoder.encode(texts, precision="bf16") - right).max() < 0.1
"""


@pytest.mark.real
@pytest.mark.parametrize("variable", [{"OMP_THREAD_LIMIT": "1"}, {"OMP_DYNAMIC": "true"}])
def test_vectors_are_right_where_openmp_starts_fewer_threads(bert_folder, variable):
    """Without the reduced number, oneDNN leaves parts of bf16 products uncomputed."""
    own = {**os.environ, "OMP_NUM_THREADS": "2", **variable}
    subprocess.run([sys.executable, "-c", LIMITED, bert_folder], env=own, check=True)
