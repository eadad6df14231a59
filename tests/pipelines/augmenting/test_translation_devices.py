"""Back-translation's engine, precision and budget suit the workers' devices, not the driver's."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import ray
import torch

from cotbert_core.errors import UserError
from cotbert_core.training import devices
from pipelines.augmenting import back_translation, methods
from pipelines.augmenting.back_translation import CPU_BATCH_TOKENS, GPU_BATCH_TOKENS
from pipelines.augmenting.marian import MarianModel
from pipelines.augmenting.options import BackTranslation
from pipelines.augmenting.translation_engines import load_engine
from pipelines.runtime import worker_resources

MARIAN = MarianModel("opus-mt", "folder", "digest")


@pytest.fixture
def machines(monkeypatch):
    """A driver with so many GPUs, and a cluster whose only node has others."""

    def make(driver, cluster):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: driver)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: driver > 0)
        monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
        monkeypatch.setattr(worker_resources, "ray_session", lambda: nullcontext())
        monkeypatch.setattr(ray, "is_initialized", lambda: True)
        node = {"Alive": True, "Resources": {"CPU": 8.0, "GPU": cluster}}
        monkeypatch.setattr(ray, "nodes", lambda: [node])

    return make


@pytest.fixture(autouse=True)
def without_models(monkeypatch):
    """No model is opened before a worker starts."""
    monkeypatch.setattr(back_translation, "find_marian", lambda name, _: MARIAN)
    monkeypatch.setattr(back_translation, "choose_prefix", lambda *_: "")
    monkeypatch.setattr(back_translation, "converted", lambda *_: None)


def translation_job(**options):
    asked = BackTranslation(beam=1, **options)
    return methods.TranslationJob(asked, workers=None)


@pytest.mark.parametrize(
    ("driver", "cluster", "engine", "chosen"),
    [
        (0, 4, "auto", ("transformers", "float16", GPU_BATCH_TOKENS, "gpu")),
        (1, 0, "transformers", ("transformers", "float32", CPU_BATCH_TOKENS, "cpu")),
    ],
)
def test_a_job_is_planned_for_the_clusters_devices(machines, driver, cluster, engine, chosen):
    machines(driver, cluster)
    record = translation_job(engine=engine).record
    names = ("engine", "precision", "batch_tokens", "device")
    assert tuple(record[name] for name in names) == chosen


def test_an_engine_for_cores_takes_no_gpu_away(machines, monkeypatch):
    machines(driver=0, cluster=4)
    job = translation_job(engine="ctranslate2", precision="float32")
    assert (job.record["device"], job.record["batch_tokens"]) == ("cpu", CPU_BATCH_TOKENS)
    asked = []
    monkeypatch.setattr(methods, "ray_session", lambda: nullcontext())
    monkeypatch.setattr(methods, "message_queue", lambda handle: nullcontext())
    monkeypatch.setattr(methods, "map_shards_with_actors", lambda *a: asked.append(a[-1]) or [])
    job.run(None, ["part-000000.parquet"], print)
    assert "num_gpus" not in asked[0]


def test_without_a_cluster_this_machine_decides(machines, monkeypatch):
    machines(driver=1, cluster=0)
    monkeypatch.delenv("RAY_ADDRESS")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    assert worker_resources.has_gpus()
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert not worker_resources.has_gpus()


def test_a_worker_that_finds_no_gpu_refuses_float16(monkeypatch):
    """torch without CUDA on a node whose GPU Ray sees."""
    monkeypatch.setattr(devices, "_chosen", torch.device("cpu"))
    options = BackTranslation(engine="transformers", precision="float16", beam=1)
    with pytest.raises(UserError, match="float16, for GPUs, and this worker's torch finds no GPU"):
        load_engine(MARIAN, options, 1)
