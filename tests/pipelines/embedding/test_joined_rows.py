"""The script of docs/adapting.md that joins the rows of each document for `cotbert embed`."""

from __future__ import annotations

import re
from pathlib import Path

from pipelines.embedding.embed import read_embeddings

ADAPTING = Path(__file__).parents[3] / "docs" / "adapting.md"
TICKETS = """ticket,text
07,The parcel arrived late.
a-3,oil
07,It was at the customs.
a-3,
,a text of no ticket
b,NA
"""


def test_the_script_joins_the_rows_of_each_document(tmp_path, job, encoded, monkeypatch):
    page = ADAPTING.read_text(encoding="utf-8")
    (script,) = re.findall(r"```python\n(import pandas.*?)```", page, re.DOTALL)
    (options,) = re.findall(r"`cotbert embed \S+ --input (\S+ --id-column \S+) --output", page)
    file, _, column = options.split()
    (tmp_path / "tickets.csv").write_text(TICKETS)
    monkeypatch.chdir(tmp_path)
    exec(script, {})
    job("out", file, id_column=column)
    assert read_embeddings(tmp_path / "out")[0].tolist() == ["07", "a-3"]
    assert encoded == ["The parcel arrived late. It was at the customs.", "oil"]
