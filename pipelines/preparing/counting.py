"""The counts of a shard or part: their keys and files."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

DROPPED = "dropped."
CHANGED = "changed."
LENGTH = "length."


def read_counts(path: Path) -> Counter[str]:
    """Return the counts of a shard or part, whose file is written last and marks it as done."""
    counts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return Counter(counts)
