"""`python -m benchmarks.gpu_check` on a CPU with tiny settings, and each check with its fault."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace

import pytest
import torch
from forked import Command
from worker_pair import run_pair

from benchmarks import gpu_check, gpu_checks, gpu_equality, gpu_jobs, harness
from benchmarks.gpu_checks import Check, Setup
from cotbert_core.methods import METHODS
from cotbert_core.training import devices, gradient_cache
from pipelines.cli import main


@pytest.fixture
def setup(tmp_path, bert_folder, sentences, monkeypatch):
    """Two processes in place of GPUs, the tiny encoder in place of both."""
    monkeypatch.setattr(devices, "_chosen", None)
    texts = tuple(f"{a} {b}" for a in sentences for b in sentences)
    small = {"batch": 6, "large_batch": 4, "steps": 1, "run_steps": 8, "rows": 300}
    return Setup(torch.device("cpu"), 2, bert_folder, bert_folder, texts, tmp_path, **small)


def failed(checks):
    return [check.name for check in checks if not check.ok]


@pytest.mark.real
def test_gradients_of_methods(setup, monkeypatch):
    small = {"method.layers": 1, "method.heads": 2, "method.feed_forward": 24}
    few = {name: gpu_checks.METHODS[name] for name in ("promptbert", "denosent")}
    monkeypatch.setattr(gpu_checks, "METHODS", few | {"denosent": few["denosent"] | small})
    found = list(gpu_checks.gradients(setup))
    assert len(found) == 2 * 2
    assert failed(found) == []


@pytest.mark.real
def test_other_dropout_in_the_second_pass_fails(setup, monkeypatch):
    monkeypatch.setattr(gpu_checks, "METHODS", {"cot-bert": {}})
    real = gradient_cache.checkpoint
    loose = {"preserve_rng_state": False}
    monkeypatch.setattr(gradient_cache, "checkpoint", lambda *a, **k: real(*a, **k, **loose))
    assert failed(gpu_checks.gradients(setup)) == ["gradient in chunks, dropout, cot-bert"]


@pytest.mark.real
def test_methods_and_families_are_compared_with_the_cpu(setup, monkeypatch):
    found = [*gpu_equality.methods(setup), *gpu_equality.families(setup)]
    assert failed(found) == []
    assert set(gpu_equality.COMPARED) == set(METHODS) - {"tsdae"}
    assert len(found) == len(gpu_equality.COMPARED) + len(gpu_equality.FAMILIES)
    real, calls = gpu_equality.gradient_of, count(1)
    wrong_on_one = lambda *given: real(*given) * (1 + next(calls) % 2 / 1000)  # noqa: E731
    monkeypatch.setattr(gpu_equality, "gradient_of", wrong_on_one)
    assert len(failed(gpu_equality.methods(setup))) == len(gpu_equality.COMPARED)


@pytest.mark.real
def test_attention_speed_and_waits(setup):
    found = [*gpu_checks.attentions(setup), *gpu_checks.waits(setup)]
    assert failed(found) == []
    assert float(found[0].result) > 0.999
    steps = list(gpu_checks.speed(setup))
    assert failed(steps) == []
    assert sum("a second" in check.name for check in steps) == 2


@pytest.mark.real
def test_ddp_on_two_processes(setup, monkeypatch):
    monkeypatch.setattr(gpu_jobs, "spawn", run_pair)
    found = list(gpu_jobs.data_parallel(setup))
    assert [check.ok for check in found] == [True, True]
    assert {check.limit for check in found} == {"<= 1e-04"}


def test_the_table_and_the_status(setup, monkeypatch, capsys):
    def broken(_):
        yield Check("first", "1", "<= 2", True)
        raise RuntimeError("no memory\nlast")

    facts = gpu_check.machine_lines()
    assert f"torch: {torch.__version__.split('+')[0]}" in facts
    assert "system: " in facts
    checks = {"broken": broken, "sound": lambda _: [Check("second", "1", "<= 2", True)]}
    monkeypatch.setattr(gpu_check, "CHECKS", checks)
    monkeypatch.setattr(gpu_check, "gpu_setup", lambda *_: setup)
    monkeypatch.setattr(gpu_check, "machine_lines", lambda: facts)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert gpu_check.main(["--only", "broken"]) == 1
    *_, first, last = capsys.readouterr().out.splitlines()
    assert first == "| first | 1 | <= 2 | ok |"
    assert last.startswith("| broken | RuntimeError: no memory | ")
    assert last.endswith("| FAILED |")
    assert gpu_check.main(["--only", "sound"]) == 0
    assert capsys.readouterr().out.endswith("| second | 1 | <= 2 | ok |\n")


def test_without_cuda_it_says_so_and_ends_with_2(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_check.main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "torch finds no CUDA GPU on this machine: run this on one" in captured.err


def test_peers_are_timed_with_what_they_gave_to_the_device(monkeypatch):
    """A released step that returns at once was timed without its work on the GPU."""
    order = []
    monkeypatch.setattr(harness, "synchronize", lambda: order.append("device"))
    harness.interleave({"a": lambda n: order.append("a"), "b": lambda n: order.append("b")}, 1)
    assert order == ["device", "a", "device", "device", "b", "device"]


@pytest.mark.ray_local
@pytest.mark.usefixtures("ray_here")
def test_actors_of_the_pool(setup):
    assert failed(gpu_jobs.embedding(setup)) == []


def in_this_ray(command, **_):
    """A whole command of `cotbert`, in this process and its Ray."""
    assert main(command[3:]) == 0


@pytest.mark.ray_local
@pytest.mark.usefixtures("ray_here")
def test_embedding_by_several_workers(setup, monkeypatch):
    monkeypatch.setattr(gpu_jobs, "timed", lambda _, *words: main([*map(str, words)]))
    monkeypatch.setattr(gpu_jobs, "WORKERS_PER_GPU", (1,))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{setup.home / 'mlflow.db'}")
    found = list(gpu_jobs.feeding(setup))
    assert failed(found) == []
    assert float(found[0].result) > 0


@pytest.mark.ray_local
@pytest.mark.usefixtures("ray_here")
def test_a_run_is_profiled_killed_and_resumed(setup, monkeypatch):
    killed = SimpleNamespace(run=in_this_ray, Popen=lambda words, **_: Command(*words[3:]))
    monkeypatch.setattr(gpu_jobs, "subprocess", killed)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{setup.home / 'mlflow.db'}")
    found = list(gpu_jobs.runs(setup))
    assert failed(found) == []
    assert found[0].name == "profile"
