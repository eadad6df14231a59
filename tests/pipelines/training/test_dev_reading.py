"""A dev check reads the encoder as `method.dev_reading` says."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from cotbert_core import SentenceEncoder
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.evaluation import score_pairs
from cotbert_core.methods import build_method
from pipelines.training import worker
from pipelines.training.dev_sets import dev_pairs


@pytest.fixture
def check(bert_folder, tiny_settings, monkeypatch):
    """The dev score of an untrained PromptBERT, as a worker computes it, and the method."""
    monkeypatch.setattr(worker, "log_metrics", lambda *_: None)

    def score(dev_reading):
        changes = {
            "method.name": "promptbert",
            "method.dev_reading": dev_reading,
            "templates.anchor": "promptbert/anchor",
            "templates.positive": "promptbert/positive",
            "templates.negative": None,
        }
        settings = tiny_settings(bert_folder, changes)
        torch.manual_seed(0)
        method = build_method(load_backbone(bert_folder), settings)
        dev = {"pairs": dev_pairs(None, None)}
        training = SimpleNamespace(method=method, settings=settings, dev=dev)
        return worker._check(training), method

    return score


def test_it_reads_as_at_inference_or_as_released(check):
    scores = {}
    for way in ("inference", "released"):
        scores[way], method = check(way)
        reading = method.pooling
        if way == "released":
            reading = replace(reading, full_stop=False, denoise="position")
        encoder = SentenceEncoder(method.backbone, reading)
        expected = score_pairs(
            lambda s, encoder=encoder: encoder.encode(s, precision="fp32"), dev_pairs(None, None)
        ).spearman
        assert scores[way] == pytest.approx(expected, abs=1e-9)
    assert abs(scores["inference"] - scores["released"]) > 0.1
