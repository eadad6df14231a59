"""The checks of `python -m benchmarks.gpu_check` that need processes: DDP, Ray, whole runs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.multiprocessing.spawn import spawn

from benchmarks.commands import sets, timed
from benchmarks.gpu_checks import (
    GRADIENT_LIMIT,
    LOSS_LIMIT,
    Check,
    Setup,
    apart,
    batch_of,
    below,
    gradient_of,
    method_of,
    near,
    settings_for,
)
from benchmarks.preparing import recombine
from cotbert_core.evaluation.pairs import cosines
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.settings import TrainSettings
from cotbert_core.training.devices import use_device
from cotbert_core.training.distributed import in_parallel

WORKERS_PER_GPU = (1, 2, 4)


def data_parallel(setup: Setup) -> Iterator[Check]:
    """Check the gradient of W workers under DDP against that of one on the same global batch."""
    if setup.gpus < 2:
        yield Check("DDP", "one GPU: nothing to compare", "several GPUs", True)
        return
    size = setup.batch - setup.batch % setup.gpus
    settings = settings_for(setup.encoder, size, dropout=0.0)
    whole = gradient_of(settings, batch_of(setup, size))
    spawn(_rank, (setup, settings, size), nprocs=setup.gpus)
    for rank in range(setup.gpus):
        found = torch.load(setup.home / f"gradient-{rank}.pt")
        yield below(
            f"DDP gradient, rank {rank} of {setup.gpus}", apart(found, whole), GRADIENT_LIMIT
        )


def _rank(rank: int, setup: Setup, settings: TrainSettings, size: int) -> None:
    """Run a worker's step and write its averaged gradient to a file."""
    torch.set_num_threads(1)
    use_device(f"cuda:{rank}" if setup.on_gpu else "cpu")
    torch.distributed.init_process_group(
        "nccl" if setup.on_gpu else "gloo",
        init_method=f"file://{setup.home}/rendezvous",
        rank=rank,
        world_size=setup.gpus,
    )
    each = size // setup.gpus
    own = batch_of(setup, size).take(np.arange(rank * each, (rank + 1) * each))
    method = method_of(settings)
    model = in_parallel(method)  # held until the end: DDP averages nothing once it is gone
    model(own).loss.backward()
    found = [p.grad.flatten() for p in method.parameters() if p.grad is not None]
    torch.save(torch.cat(found).cpu(), setup.home / f"gradient-{rank}.pt")
    torch.distributed.barrier()  # taken down alone, gloo now and then aborts the other
    torch.distributed.destroy_process_group()


def embedding(setup: Setup) -> Iterator[Check]:
    """Check that the actors of `cotbert embed` use one GPU each and give equal vectors."""
    from pipelines.runtime.ray_session import ray_session
    from pipelines.runtime.shard_tasks import map_shards_with_actors
    from pipelines.runtime.worker_resources import worker_pool

    texts = setup.texts[: 64 * setup.gpus]
    expected = SentenceEncoder.from_pretrained(setup.encoder).encode(texts)
    with ray_session():
        workers, resources, threads = worker_pool(setup.gpus, on_gpus=setup.on_gpu)
        arguments = {"encoder": setup.encoder, "texts": texts, "threads": threads}
        rows = list(map_shards_with_actors(EmbedAll, arguments, 8 * workers, workers, resources))
    least = min(float(cosines(row["vectors"], expected).min()) for row in rows)
    yield near("embedding, least cosine", least)
    used = len({(row["node"], row["gpu"]) for row in rows})
    ok = used == setup.gpus if setup.on_gpu else {row["gpu"] for row in rows} == {"cpu"}
    yield Check("embedding, GPUs used", f"{used if setup.on_gpu else 0}", f"{setup.gpus}", ok)


class EmbedAll:
    """An actor that encodes all texts, slowly enough that every actor of the pool gets a share."""

    def __init__(self, encoder: str, texts: tuple[str, ...], threads: int) -> None:
        torch.set_num_threads(threads)
        self._encoder, self._texts = SentenceEncoder.from_pretrained(encoder), texts

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        import ray

        time.sleep(1)
        gpus = ray.get_gpu_ids()
        device = self._encoder.backbone.device.type
        return {
            "vectors": self._encoder.encode(self._texts),
            "gpu": str(gpus[0]) if gpus and device == "cuda" else device,
            "node": ray.get_runtime_context().get_node_id(),
        }


def feeding(setup: Setup) -> Iterator[Check]:
    """Measure how fast `cotbert embed` is with one, two and four workers on each GPU.

    A worker reads, tokenizes and writes beside the encoder, and may not keep a fast GPU busy.
    """
    text = setup.home / "rows.txt"
    recombine(setup.texts, setup.rows, text)
    for each in WORKERS_PER_GPU:
        output = setup.home / f"embedded-{each}"
        words = ("embed", setup.encoder, "--input", text, "--output", output)
        timed(setup.home, *words, "--workers", each * setup.gpus)
        result = json.loads((output / "result.json").read_text(encoding="utf-8"))
        name = f"cotbert embed, {each} worker(s) per GPU, rows/s"
        whole = result["rows"] == setup.rows
        yield Check(name, f"{result['sentences_per_second']:.0f}", f"{setup.rows} rows", whole)


def runs(setup: Setup) -> Iterator[Check]:
    """Check that a run with a profile and one that is killed and resumed have equal losses."""
    from pipelines.training.metrics_log import METRICS_FILE, read_rows

    command = _train_command(setup)
    whole, killed = setup.home / "whole", setup.home / "killed"
    subprocess.run([*command, "--output", str(whole), "--profile"], check=True, stdout=sys.stderr)
    table = whole / "profile" / "table.md"
    yield Check("profile", "written" if table.is_file() else "missing", "written", table.is_file())
    process = subprocess.Popen([*command, "--output", str(killed)], stdout=sys.stderr)
    while process.poll() is None and not list(killed.glob("checkpoints/step-????????")):
        time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    subprocess.run([*command, "--output", str(killed)], check=True, stdout=sys.stderr)
    left, right = (read_rows(folder / METRICS_FILE) for folder in (killed, whole))
    steps = [step for step, row in right.items() if "loss" in row]
    distance = max(abs(left[s]["loss"] / right[s]["loss"] - 1) for s in steps)
    yield below(f"resume, loss of {len(steps)} steps apart", distance, LOSS_LIMIT)
    result = json.loads((whole / "result.json").read_text(encoding="utf-8"))
    yield Check("run, sentences/s", f"{result['sentences_per_second']:.0f}", "> 0", True)


def _train_command(setup: Setup) -> list[str]:
    """Return the command of a training on this machine's docstrings, with one worker per GPU."""
    text, corpus = setup.home / "text.txt", setup.home / "corpus"
    text.write_text("\n".join(setup.texts), encoding="utf-8")
    cotbert = [sys.executable, "-m", "pipelines.cli"]
    prepared = ["prepare", "--input", str(text), "--output", str(corpus)]
    subprocess.run([*cotbert, *prepared, "--encoder", setup.encoder], check=True, stdout=sys.stderr)
    changes = {
        "max_steps": setup.run_steps,
        "eval_every": setup.run_steps // 4,
        "batch_size": setup.batch * setup.gpus,
        "gpus_per_worker": int(setup.on_gpu),
    }
    train = ["train", "quickstart", "--corpus", str(corpus), "--encoder", setup.encoder]
    train += ["--workers", str(setup.gpus)]
    return [*cotbert, *train, *sets(changes)]
