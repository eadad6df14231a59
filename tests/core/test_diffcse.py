"""DiffCSE: its loss a token at a time, the replaced tokens, and what is dropped afterwards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from made_encoders import with_encoders
from torch.nn.functional import relu

from benchmarks.method_table import BARE
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.errors import UserError
from cotbert_core.methods import build_method, diffcse
from cotbert_core.training.batches import Batch
from tests.core import slow_reference
from tests.core.slow_reference import assert_same_step, embedded, exact, plain_vectors

TEMPERATURE, WEIGHT = 0.5, 0.7


@pytest.fixture
def headed(encoder_folder, with_mlm_head, tmp_path):
    """The encoder with random weights and a head for its vocabulary."""
    place = tmp_path / f"headed-{Path(encoder_folder).name}"
    return with_mlm_head(encoder_folder, place, noise=0.1)


@pytest.fixture
def make(headed, tiny_settings):
    def build(attention="auto", mini_batch_size=None, **changes):
        given = {"name": "diffcse", "temperature": TEMPERATURE, "detection_weight": WEIGHT}
        changes = {f"method.{name}": value for name, value in {**given, **changes}.items()}
        few = {"batch_size": 6, "mini_batch_size": mini_batch_size}
        settings = tiny_settings(headed, {**changes, **few, **BARE})
        torch.manual_seed(1)
        method = build_method(load_backbone(headed, dropout=0.0, attention=attention), settings)
        # Small layers would leave the detector and the head with nothing to tell.
        for layer in (method.discriminator.detector, method.head.inward, method.head.outward):
            torch.nn.init.normal_(layer.weight, std=0.3)
        method.step = 3
        return method

    return build


def edited_texts(method, ids):
    """The edited sentences without special tokens, one array each."""
    rows = method.edited(ids)
    return [row[1 : 1 + len(text)].numpy() for row, text in zip(rows, ids, strict=True)]


def normalize(rows, norm):
    """Each number minus its mean over the rows, by its standard deviation."""
    mean = sum(rows) / len(rows)
    spread = sum((row - mean) ** 2 for row in rows) / len(rows)
    return [(row - mean) / torch.sqrt(spread + norm.eps) for row in rows]


def through_head(head, vectors):
    inner = normalize([head.inward.weight @ v for v in vectors], head.norm)
    inner = [row * head.norm.weight + head.norm.bias for row in inner]
    return normalize([head.outward.weight @ relu(v) for v in inner], head.last)


def slow_detection(model, detector, ends, edited, original, vectors):
    """Token by token: the discriminator's first embedding is the sentence vector."""
    total, count = 0.0, 0
    for after, before, vector in zip(edited, original, vectors, strict=True):
        ids = [ends[0], *(int(t) for t in after), ends[1]]
        state = torch.cat([vector[None, None], embedded(model, ids)[:, 1:]], dim=1)
        hidden = model.encoder(state).last_hidden_state[0]
        labels = [0, *(int(a != b) for a, b in zip(after, before, strict=True)), 0]
        for row, label in zip(hidden, labels, strict=True):
            scores = detector.weight @ row + detector.bias
            total = total - (scores[label] - torch.logsumexp(scores, 0))
            count += 1
    return total / count


@with_encoders(
    "readout attention mini_batch_size",
    ("bert", "cls", "auto", None),
    ("roberta", "mean", "unpadded", 2),
)
def test_loss_and_gradients_equal_a_token_at_a_time(
    make, ids, ends, readout, attention, mini_batch_size, monkeypatch
):
    monkeypatch.setattr(diffcse, "train_budget", lambda _: (20, 0))  # several batches
    method = make(attention, mini_batch_size, readout=readout)
    plain = make(readout=readout)
    model, head, twin = (exact(p) for p in (plain.encoder, plain.head, plain.discriminator))
    edited = edited_texts(method, ids)
    raw = plain_vectors(model, ends, ids, readout)
    both = through_head(head, raw + raw)
    first, second = both[: len(ids)], both[len(ids) :]
    contrast = slow_reference.info_nce(TEMPERATURE, first, second)
    detection = slow_detection(twin.encoder, twin.detector, ends, edited, ids, first)
    expected = contrast + WEIGHT * detection
    output = method(Batch(ids))
    assert output.parts["contrastive"].item() == pytest.approx(contrast.item(), abs=1e-5)
    assert output.parts["detection"].item() == pytest.approx(detection.item(), abs=1e-5)
    assert np.concatenate(edited).tolist() != ids.flat.tolist(), "premise"
    twins = (method.encoder, model), (method.head, head), (method.discriminator, twin)
    assert_same_step(output, expected, *twins)


def test_the_generator_s_first_choice_stands_at_the_masks_alone(make, ids, ends, headed):
    from transformers import AutoModelForMaskedLM

    method = make(mask_share=0.4)
    whole = AutoModelForMaskedLM.from_pretrained(headed).eval()
    masked = method.masking.only_masks(ids, method.settings.seed, 3)
    edited, start = edited_texts(method, ids), 0
    for after, before, hidden in zip(edited, ids, masked.ids, strict=True):
        row = torch.tensor([[ends[0], *hidden.tolist(), ends[1]]])
        with torch.no_grad():
            best = whole(row).logits[0, 1:-1].argmax(dim=-1).tolist()
        chosen = masked.chosen[start : start + len(before)]
        start += len(before)
        assert chosen.sum() == max(1, round(0.4 * len(before)))
        expected = [b if c else t for b, c, t in zip(best, chosen, before.tolist(), strict=True)]
        assert after.tolist() == expected
    method.step = 4
    other = np.concatenate(edited_texts(method, ids))
    assert other.tolist() != np.concatenate(edited).tolist(), "other tokens in another step"


def test_an_encoder_without_a_vocabulary_head_is_refused(encoder_folder, tiny_settings):
    settings = tiny_settings(encoder_folder, {"method.name": "diffcse", **BARE})
    with pytest.raises(UserError, match=r"method\.generator: .* has no masked-language-model head"):
        build_method(load_backbone(encoder_folder), settings)
