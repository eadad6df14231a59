"""A process of its own that prepares a corpus and prints its rows and how much memory it took.

python measured_reading.py INPUT ENCODER   both passes of `cotbert prepare`, without Ray
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
from pathlib import Path

from pipelines.embedding.worker import peak_mib
from pipelines.reading import sources

# So that a reader without bounds fails here and not elsewhere on the machine.
MOST_BYTES = 6 << 30


def prepare(name: str) -> dict[str, object]:
    from cotbert_core.encoder.backbone import load_tokenizer
    from pipelines.cleaning.cleaner import Cleaner
    from pipelines.cleaning.options import CleanOptions
    from pipelines.preparing import duplicates
    from pipelines.preparing.exclusion import Exclusion
    from pipelines.preparing.part_tasks import RowRange, WritePart
    from pipelines.preparing.scratch_files import shard_file
    from pipelines.preparing.shard_tasks import ReadShard, Rules

    plan = sources.plan([name])
    rules = Rules("drop", Cleaner(CleanOptions()), Exclusion(), None)
    tokenizer = load_tokenizer(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        found = ReadShard(plan, (0,), folder, rules)({"id": 0})["counts"]
        duplicates.mark_first([shard_file(scratch, 0, "ids")], scratch / "keep", scratch)
        groups = ((RowRange(0, 0, found["kept"], 0),),)
        task = WritePart(tokenizer.json, 32, CleanOptions(), folder, folder, groups, (0,))
        return {"read": found["read"], "rows": task({"id": 0})["counts"]["rows"]}


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    before = peak_mib()
    result = prepare(sys.argv[1])
    print(json.dumps({**result, "mib": round(peak_mib() - before)}))
