"""Which work is left, and what the records say."""

from __future__ import annotations

import re
import time
from pathlib import Path

from cotbert_core.files import write_json
from pipelines.embedding import blocks
from pipelines.embedding.blocks import (
    BlockLedger,
    BlockRange,
    block_ranges,
    expected_rows,
    record_file,
    write_end,
)
from pipelines.embedding.embed import _shown_progress
from pipelines.reading.read_plan import ReadPlan, Shard


def plan(*shards):
    return ReadPlan(list(shards), [], 0, "text")


def record(scratch, shard, block, rows=1, started=0.0, read=0):
    counts = {"rows": rows, "read": read}
    value = {"counts": counts, "started": started, "ended": started + 2}
    write_json(record_file(scratch, shard, block), value)


PARQUET = Shard("a.parquet", "parquet", 0, 1, rows=50)
LINES = Shard("a.txt", "txt", 0, 9, rows=4)
STREAM = Shard("a.txt.gz", "txt")


def test_every_block_of_a_large_shard_has_one_worker(tmp_path):
    made = block_ranges(plan(PARQUET, LINES, STREAM), tmp_path, 3)
    assert made == (
        *(BlockRange(0, n, 3) for n in range(3)),
        BlockRange(1, 0, 1),
        *(BlockRange(2, n, 3) for n in range(3)),
    )
    for block in range(10):
        assert sum(unit.contains(block) for unit in made[:3]) == 1


def test_many_shards_are_not_shared():
    many = [PARQUET] * (3 * blocks.SHARDS_PER_WORKER)
    assert {unit.step for unit in block_ranges(plan(*many), Path("no such folder"), 3)} == {1}


def test_a_shard_is_done_when_its_end_and_all_its_blocks_are_there(tmp_path):
    both = plan(LINES, PARQUET)
    record(tmp_path, 1, 0)
    record(tmp_path, 1, 1)
    assert len(block_ranges(both, tmp_path, 1)) == 2
    write_end(tmp_path, 1, 3)
    assert len(block_ranges(both, tmp_path, 1)) == 2
    record(tmp_path, 1, 2)
    assert block_ranges(both, tmp_path, 1) == (BlockRange(0, 0, 1),)
    write_end(tmp_path, 0, 0)  # a shard of no rows
    assert block_ranges(both, tmp_path, 1) == ()


def test_what_was_there_counts_but_not_for_the_rate(tmp_path):
    record(tmp_path, 0, 1, rows=10)
    ledger = BlockLedger(tmp_path)
    assert (ledger.counts["rows"], ledger.new_rows, ledger.rate) == (10, 0, 0.0)
    record(tmp_path, 0, 0, rows=5, started=10.0)
    assert [ledger.update(), ledger.update()] == [True, False]
    assert (ledger.counts["rows"], ledger.new_rows, ledger.rate) == (15, 5, 2.5)


def test_the_time_left_counts_from_the_first_block(tmp_path, capsys):
    """Not from the start of the workers. Here one block of 27 of 54 rows took 100 seconds."""
    ledger = BlockLedger(tmp_path)
    with _shown_progress(plan(PARQUET, LINES), ledger):
        record(tmp_path, 0, 0, started=time.time() - 100, read=27)
    assert re.search(r"rows 27/54 .* 1:4\d left", capsys.readouterr().err)


def test_the_last_line_is_not_repeated_in_a_log(tmp_path, capsys):
    ledger = BlockLedger(tmp_path)
    with _shown_progress(plan(STREAM), ledger):
        record(tmp_path, 0, 0, read=27)
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_rows_are_known_unless_a_file_must_be_read():
    assert expected_rows(plan(PARQUET, LINES)) == 54
    assert expected_rows(plan(LINES, STREAM)) is None
