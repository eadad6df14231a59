"""A process that has trained gives its memory back when it waits for the next run."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

SCRIPT = """
from cotbert_core.training.memory import keep_freed_memory, return_freed_memory

keep_freed_memory()
import torch


def resident():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS"))


begun = resident()
tensors = [torch.ones(1 << 20) for _ in range(50)]  # 200 MiB
del tensors
freed = resident()
return_freed_memory()
print(begun, freed, resident())
"""


@pytest.mark.real
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps freed memory")
def test_freed_memory_is_kept_until_it_is_returned():
    words = [sys.executable, "-c", SCRIPT]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    begun, freed, returned = map(float, shown.split())
    assert freed - begun > 170
    assert returned - begun < 30
