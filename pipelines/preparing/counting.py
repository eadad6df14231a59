"""The counts of a shard or part: their keys, and the files that hold them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from pipelines.storage.resumable_output import atomic_file

DROPPED = "dropped."
CHANGED = "changed."
LENGTH = "length."


def write_counts(counts: Any, path: Path) -> None:
    """Write the counts of a shard or part; the file marks it as done."""
    with atomic_file(path, path.parent) as partial:
        partial.write_text(json.dumps(counts), encoding="utf-8")


def read_counts(path: Path) -> Counter[str]:
    counts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return Counter(counts)
