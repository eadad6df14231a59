"""cotbert embed in this process: block ranges one after the other, no Ray and no MLflow."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from pipelines import embed as embed_job


@pytest.fixture
def without_ray(unrecorded, monkeypatch):
    """Two workers, in turn."""

    def in_turn(actor, arguments, count, workers, resources, calls):
        made = actor(**arguments)
        return (made({"id": number}) for number in range(count))

    monkeypatch.setattr(embed_job, "map_shards_with_actors", in_turn)
    monkeypatch.setattr(embed_job, "worker_pool", lambda workers, on_gpus: (workers or 2, {}, 1))
    monkeypatch.setattr(embed_job, "ray_session", lambda *_: nullcontext())
