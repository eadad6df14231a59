"""The driver of cotbert prepare: how much of the input each shard is."""

from __future__ import annotations

import gzip
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.preparing.driver import shard_bytes
from pipelines.reading import sources


@pytest.mark.usefixtures("without_ray")
def test_progress_counts_the_bytes_of_shards(tmp_path, made, monkeypatch, capsys):
    """Not the shards, of which a compressed file is one."""
    (tmp_path / "a.txt").write_text("two dogs\n" * 10)
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"a man\n" * 100, mtime=0))
    table = pa.table({"text": ["the sea", "the oil"]})
    pq.write_table(table, tmp_path / "c.parquet", row_group_size=1)
    monkeypatch.setattr(sources, "plan", partial(sources.plan, shard_bytes=40))
    plan = sources.plan([str(tmp_path)])
    packed, pages = ((tmp_path / name).stat().st_size for name in ("b.txt.gz", "c.parquet"))
    assert shard_bytes(plan, sources.stamps(plan)) == [45, 45, packed, pages // 2, pages // 2]
    made(*(tmp_path / name for name in ("a.txt", "b.txt.gz", "c.parquet")))
    total = 90 + packed + pages // 2 * 2
    assert f"prepare  bytes read {total:,}/{total:,}  112 rows" in capsys.readouterr().err
