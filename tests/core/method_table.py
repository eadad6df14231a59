"""Every method with the settings of a small run, for what all of them must do alike."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.method_table import ALL_METHODS
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.methods import build_method
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.settings import TrainSettings, override
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.training.batches import Batch

METHODS = ALL_METHODS | {
    "cot-bert frozen bias": {"method.freeze_bias": True},
    "denosent": {
        **ALL_METHODS["denosent"],
        "method.layers": 1,
        "method.heads": 2,
        "method.feed_forward": 24,
    },
    "pcl": {**ALL_METHODS["pcl"], "method.copies": 1},
}
# The further encoders of a method, from a folder.
OTHERS = {
    "dclr": lambda folder: {"method.complement": folder},
    "diffcse": lambda folder: {"method.generator": folder},
    "rankcse": lambda folder: {"method.teacher": folder},
}
# Methods without a temperature, which tiny settings set, and without chunks.
PLAIN = ("tsdae", "mlm")


def as_encoder(method):
    """The encoder of a method as it is saved."""
    return SentenceEncoder(method.finished, method.pooling, method.kept_head)


def random_rows(lengths, seed=0):
    """Rows of tokens from 5 to 999, none of them twice in a row."""
    random = np.random.default_rng(seed)
    return Ragged.from_lists([5 + random.permutation(995)[:n] for n in lengths])


def make_start(tiny_settings, folder, headed, sentences):
    """A function that makes a method by its name, with its settings and a batch: each time the
    same numbers. headed: a folder of the same encoder with a masked-language-model head."""

    def start(name, dropout=0.0, **changes):
        quiet = {"method.dropout": 0.0, "method.decoder_dropout": 0.0}
        still = (
            quiet if name == "denosent" and not dropout else OTHERS.get(name, lambda _: {})(headed)
        )
        kind = METHODS[name] | still | {"batch_size": 6, "dropout": dropout} | changes
        if name in PLAIN:
            few = {"max_length": 8, "precision": "fp32"}
            settings = override(TrainSettings(encoder=folder), few | kind)
        else:
            settings = tiny_settings(folder, kind)
        torch.manual_seed(1)
        backbone = load_backbone(folder, dropout=dropout, attention=settings.attention)
        method = build_method(backbone, settings).to(backbone.device)
        method.train(name != "tsdae")  # its decoder, opened by its library, keeps its dropout
        ids = method.backbone.tokenizer(sentences, 8)
        others = (ids.take(np.roll(np.arange(6), places)) for places in (1, 2))
        torch.manual_seed(2)
        return method, settings, Batch(ids, *others)

    return start
