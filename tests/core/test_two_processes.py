"""The methods with further encoders or states in two real processes, against one process."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist

from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.methods import build_method
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.training.batches import Batch
from cotbert_core.training.distributed import in_parallel
from cotbert_core.training.sampling import own_share
from cotbert_core.training.step import make_optimizer, train_step

METHODS = (
    *("promcse", "consert", "esimcse", "arccse", "dclr"),
    *("diffcse", "rankcse", "pcl", "sncse"),
)
NONE = {f"templates.{role}": None for role in ("anchor", "positive", "negative")}
STEPS = 3


def curve(settings, lists, rank=0, workers=1):
    """The losses of some steps on the same sentences, in another order in each."""
    torch.manual_seed(0)
    method = build_method(load_backbone(settings.encoder, dropout=0.0), settings).train()
    model, optimizer = in_parallel(method), make_optimizer(method, settings.optimizer)
    losses = []
    for step in range(1, STEPS + 1):
        method.step = step
        rows = np.random.default_rng(step).permutation(len(lists))
        batch = own_share(Batch(Ragged.from_lists([lists[i] for i in rows])), rank, workers)
        losses.append(train_step(model, batch, optimizer, settings, step, STEPS).loss)
    return losses


def one_of_two(rank, all_settings, lists, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    found = [curve(settings, lists, rank, 2) for settings in all_settings]
    torch.save(found, f"{folder}/{rank}.pt")
    # Taken down together and before the interpreter: else gloo's threads now and then abort.
    dist.barrier()
    gc.collect()
    dist.destroy_process_group()


@pytest.mark.real
def test_two_processes_have_the_curves_of_one(
    bert_folder, with_mlm_head, tiny_settings, sentences, tmp_path
):
    folder = with_mlm_head(bert_folder, tmp_path / Path(bert_folder).name, noise=0.1)
    own = {
        "rankcse": {"method.teacher": bert_folder},
        "esimcse": {"method.momentum": 0.5},
        "dclr": {
            "method.complement": bert_folder,
            "method.threshold": 0.92,
            "method.noise_step_size": 2.0,
        },
        "sncse": {f"templates.{role}": f"promptbert/{role}" for role in ("anchor", "positive")},
    }
    few = {"workers": 2, "batch_size": 6, "optimizer.learning_rate": 1e-2, **NONE}
    settings = [
        tiny_settings(folder, {**few, "method.name": name, **own.get(name, {})}) for name in METHODS
    ]
    lists = [row.tolist() for row in load_backbone(folder).tokenizer(sentences, 8)]
    expected = [curve(one, lists) for one in settings]
    shared = (settings, lists, str(tmp_path))
    torch.multiprocessing.start_processes(one_of_two, shared, nprocs=2, start_method="fork")
    for rank in (0, 1):
        for name, one, two in zip(
            METHODS, expected, torch.load(tmp_path / f"{rank}.pt"), strict=True
        ):
            assert two == pytest.approx(one, abs=1e-4), name
    for name, losses in zip(METHODS, expected, strict=True):
        assert max(losses) - min(losses) > 1e-2, f"premise: {name} moves"
