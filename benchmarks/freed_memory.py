"""Count page faults with and without `keep_freed_memory`: `python -m benchmarks.freed_memory`.

Each way runs in a process of its own, since the setting cannot be undone. The target is a tenth of
the faults; the setting only affects glibc.
"""

from __future__ import annotations

import subprocess
import sys

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


def faults(way: str) -> int:
    """Return the page faults of eight tensors of 64 MB after eight others.

    way: "kept" or "given back".
    """
    command = [sys.executable, "-c", PROGRAM, way]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    for way in ("given back", "kept"):
        print(f"{way:12s} {faults(way):,}")
