"""Jobs of `cotbert embed` in this process: small blocks, what is encoded, and stops."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from pipelines.embedding import worker
from pipelines.embedding.embed import EmbedOptions, embed
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


@pytest.fixture
def encoded(monkeypatch):
    """The texts that were encoded, in the order of their blocks."""
    seen, encode = [], worker.encode_block

    def record(encoder, texts, *more):
        seen.extend(texts)
        return encode(encoder, texts, *more)

    monkeypatch.setattr(worker, "encode_block", record)
    return seen


@pytest.fixture
def stopped(monkeypatch):
    """Stop the job in this block where it would encode one block more than `blocks`."""

    class StoppedError(Exception):
        pass

    @contextmanager
    def stop(blocks):
        encode, left = worker.encode_block, [None] * blocks

        def encode_or_stop(*arguments):
            if not left:
                raise StoppedError
            left.pop()
            return encode(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(worker, "encode_block", encode_or_stop)
            with pytest.raises(StoppedError):
                yield

    return stop
