"""Jobs of `cotbert embed` in this process, with small blocks where a test wants several."""

from __future__ import annotations

import pytest

from pipelines.embed import EmbedOptions, embed
from pipelines.reading import pieces


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of four rows."""
    monkeypatch.setattr(pieces, "PIECE_ROWS", 4)


@pytest.fixture
def job(tmp_path, bert_folder, without_ray):
    """Embed a file of tmp_path into a folder there; the result."""

    def run(output, file, *, model=bert_folder, **options):
        given = {"precision": "fp32", **options}
        return embed(EmbedOptions(str(model), (str(tmp_path / file),), **given), tmp_path / output)

    return run
