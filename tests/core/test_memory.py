"""What `keep_freed_memory` does, in processes of its own: it is for a process's whole life."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import torch
if sys.argv[1] == "kept":
    from cotbert_core.training.memory import keep_freed_memory
    keep_freed_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(8):
        torch.ones(16_000_000)  # 64 MB, freed at once
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
first = faults()
print(faults())
"""


def _faults_after_the_first_round(how: str) -> int:
    command = [sys.executable, "-c", PROGRAM, how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_memory_that_was_freed_is_not_asked_for_again() -> None:
    given_back = _faults_after_the_first_round("given back")
    assert given_back > 1_000
    # Mostly none; about 2 % where the heap could not grow in one piece.
    assert _faults_after_the_first_round("kept") < given_back / 10
