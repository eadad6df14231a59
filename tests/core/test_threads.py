"""Pieces of inference beside each other: the same results, and the caller's threads after."""

from __future__ import annotations

import threading

import pytest
import torch

from cotbert_core.encoder.threads import map_threads
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
