"""Jobs of little input run in their own process; others, and those with workers, by Ray."""

from __future__ import annotations

import numpy as np
import pytest

from cotbert_core.sentence_encoder import SentenceEncoder
from pipelines.embedding import embed as embed_job
from pipelines.embedding.embed import EmbedOptions, embed, read_embeddings
from pipelines.preparing import prepare as prepare_job
from pipelines.preparing.prepare import PrepareOptions, prepare
from pipelines.runtime.shard_tasks import FEW_BYTES, map_shards, runs_alone

TEXTS = ("A man is singing.", "Two dogs walk in the green field.", "Nobody answers.")


@pytest.mark.parametrize(
    ("size", "workers", "address", "alone"),
    [
        (FEW_BYTES, None, None, True),
        (FEW_BYTES, None, "local", True),
        (FEW_BYTES + 1, None, None, False),
        (1, 1, None, False),
        (1, None, "10.0.0.1:6379", False),
    ],
)
def test_little_input_without_workers_or_a_cluster_needs_no_ray(
    size, workers, address, alone, monkeypatch
):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if address:
        monkeypatch.setenv("RAY_ADDRESS", address)
    halves = {"a": [size // 2, 0], "b": [size - size // 2, 0]}
    assert runs_alone(halves, workers) is alone


def test_shards_run_here_in_order_where_no_ray_runs():
    assert list(map_shards(lambda row: {"square": row["id"] ** 2}, 3)) == [
        {"square": 0},
        {"square": 1},
        {"square": 4},
    ]


class RayStartedError(Exception):
    """A job asked for Ray."""


def refuse(*_):
    raise RayStartedError


@pytest.mark.usefixtures("unrecorded")
def test_prepare_and_embed_of_three_sentences_start_no_ray(tmp_path, bert_folder, monkeypatch):
    for job in (prepare_job, embed_job):
        monkeypatch.setattr(job, "ray_session", refuse)
    text = tmp_path / "text.txt"
    text.write_text("\n".join(TEXTS))
    made = prepare(PrepareOptions((str(text),), bert_folder), tmp_path / "corpus")
    assert made["rows"] == 3
    options = EmbedOptions(bert_folder, (str(text),), precision="fp32")
    assert embed(options, tmp_path / "vectors")["rows"] == 3
    ids, vectors = read_embeddings(tmp_path / "vectors")
    expected = SentenceEncoder.from_pretrained(bert_folder).encode(TEXTS, precision="fp32")
    np.testing.assert_allclose(vectors, expected[ids], atol=1e-6)
    assert vectors.flags.writeable
    assert ids.flags.writeable
    with pytest.raises(RayStartedError):
        embed(EmbedOptions(bert_folder, (str(text),), workers=1), tmp_path / "by-a-worker")
    text.write_bytes(b"\n" * (prepare_job.FEW_BYTES + 1))
    with pytest.raises(RayStartedError):
        prepare(PrepareOptions((str(text),), bert_folder), tmp_path / "larger")
