"""Every method in two real processes, against one process."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from worker_pair import run_pair

from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.methods import build_method
from cotbert_core.settings import TrainSettings, override
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.training.batches import Batch
from cotbert_core.training.distributed import in_parallel
from cotbert_core.training.sampling import own_share
from cotbert_core.training.step import make_optimizer, train_step
from tests.core.method_table import METHODS, OTHERS, PLAIN

# All but TSDAE, whose deletion draws from each process's own generator.
CASES = [(name, {}) for name in METHODS if name != "tsdae"]
# Rows that are no negatives of each other, on both workers.
DOCUMENTS = np.array([5, 2**62, 5, 7, 2**62, 8])
CASES += [
    ("cot-bert", {"method.positive": "rest", "mini_batch_size": 2}),
    ("promptbert", {"method.positive": "rest"}),
    ("simcse", {"method.positive": "neighbour"}),
]
STEPS = 3


def curve(settings, lists, rank=0, workers=1):
    """Losses and gradient norms of some steps on the same sentences, in another order in each."""
    torch.manual_seed(0)
    method = build_method(load_backbone(settings.encoder, dropout=0.0), settings).train()
    model, optimizer = in_parallel(method), make_optimizer(method, settings.optimizer)
    found = []
    for step in range(1, STEPS + 1):
        method.step = step
        rows = np.random.default_rng(step).permutation(len(lists))
        ids = Ragged.from_lists([lists[i] for i in rows])
        texts = [ids.take(np.roll(np.arange(len(ids)), places)) for places in (1, 2)]
        columns = dict(zip(settings.method.uses, texts, strict=False))
        if settings.method.from_documents:
            columns = {"augmented": texts[0], "documents": DOCUMENTS[rows]}
        batch = own_share(Batch(ids, **columns), rank, workers)
        result = train_step(model, batch, optimizer, settings, step, STEPS)
        found.append((result.loss, result.gradient_norm))
    return np.array(found)


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
        "denosent": {"method.dropout": 0.0, "method.decoder_dropout": 0.0},
        "esimcse": {"method.momentum": 0.5},
        "promcse": {"method.triples": True},
        "dclr": {"method.threshold": 0.92, "method.noise_step_size": 2.0},
    }
    few = {"workers": 2, "batch_size": 6, "optimizer.learning_rate": 1e-2}
    settings = []
    for name, more in CASES:
        others = OTHERS.get(name, lambda _: {})(bert_folder if name == "dclr" else folder)
        changes = {**METHODS[name], **few, **others, **own.get(name, {}), **more}
        plain = {"max_length": 8, "precision": "fp32", "dropout": 0.0}
        settings.append(
            override(TrainSettings(encoder=folder), plain | changes)
            if name in PLAIN
            else tiny_settings(folder, changes)
        )
    lists = [row.tolist() for row in load_backbone(folder).tokenizer(sentences, 8)]
    expected = [curve(one, lists) for one in settings]
    shared = (settings, lists, str(tmp_path))
    run_pair(one_of_two, shared)
    for rank in (0, 1):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=False)
        for case, one, two in zip(CASES, expected, found, strict=True):
            np.testing.assert_allclose(two, one, atol=1e-4, rtol=1e-4, err_msg=str(case))
    for case, one in zip(CASES, expected, strict=True):
        assert np.ptp(one[:, 0]) > 1e-2, f"premise: {case} moves"
