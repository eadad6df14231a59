"""PCL: its positives, and losses and gradients of both networks against a pair at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from made_encoders import with_encoders
from torch.nn.functional import cosine_similarity

from benchmarks.method_table import BARE
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.method_settings.baselines import AUGMENTATIONS
from cotbert_core.methods import build_method, pcl
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.training.batches import Batch
from tests.core import slow_reference
from tests.core.method_table import random_rows
from tests.core.slow_reference import assert_same_step, exact, plain_vectors

TEMPERATURE = 0.1
GROUP, COOPERATION = 0.7, 1.3


@pytest.fixture
def make(make_bare):
    """Not as at the start: a second network and a pooler of its own."""

    def build(**changes):
        weights = {"group_weight": GROUP, "cooperation_weight": COOPERATION}
        method = make_bare("pcl", temperature=TEMPERATURE, **weights | changes)
        if method.peer is not None:
            torch.nn.init.normal_(method.pooler.dense.weight, std=0.3)
            with torch.no_grad():
                for weight in method.peer.parameters():
                    weight += 0.2 * torch.randn_like(weight)
        return method

    return build


@pytest.fixture
def batch(ids):
    return Batch(ids.take([0, 2, 3, 4]))


def slow_logits(anchors, positives, columns):
    """A row each: the own positives, then all other sentences."""
    return [
        [
            cosine_similarity(anchor, other, dim=0) / TEMPERATURE
            for other in (*own, *columns[:i], *columns[i + 1 :])
        ]
        for i, (anchor, own) in enumerate(zip(anchors, positives, strict=True))
    ]


def shares(row):
    powers = [torch.exp(torch.as_tensor(value)) for value in row]
    return [power / sum(powers) for power in powers]


def slow_group_loss(logits, positives):
    total, count = 0.0, 0
    for row in logits:
        for j, share in enumerate(shares(row)):
            likely = 1 / (1 + torch.exp(-share))
            total = total - torch.log(likely if j < positives else 1 - likely)
            count += 1
    return total / count


def slow_divergence(own, peer):
    terms = [
        q * torch.log(q / p)
        for ours, theirs in zip(own, peer, strict=True)
        for p, q in zip(shares(ours), shares(theirs), strict=True)
    ]
    return sum(terms) / len(terms)


def slow_losses(sentences, positives):
    """InfoNCE and the group's loss. positives: a list for each sentence."""
    contrast = slow_reference.info_nce(TEMPERATURE, sentences, [own[0] for own in positives])
    logits = slow_logits(sentences, positives, sentences)
    return contrast + GROUP * slow_group_loss(logits, len(positives[0])), logits


def slow_views(read, ends, model, texts, readout):
    """The vectors of the sentences, and for each sentence those of its positives."""
    views = [[read(v) for v in plain_vectors(model, ends, t, readout)] for t in texts]
    return views[0], list(zip(*views[1:], strict=True))


@with_encoders(
    "readout attention mini_batch_size",
    ("bert", "cls", "auto", None),
    ("roberta", "mean", "unpadded", 4),
)
def test_loss_and_gradients_equal_a_pair_at_a_time(
    make, exact_model, batch, ends, readout, attention, mini_batch_size
):
    small = {"readout": readout, "copies": 1}
    method = make(attention=attention, mini_batch_size=mini_batch_size, **small)
    plain = make(**small)
    peer, head, pooler = exact(plain.peer), exact(method.head), exact(method.pooler)
    texts = [batch.sentences, batch.sentences, *method.augmented(batch.sentences)]
    assert len(texts) == 2 + 4

    def behind_head(vector):
        return slow_reference.tanh_head(head, vector)

    def behind_both(vector):
        return behind_head(slow_reference.tanh_head(pooler, vector))

    own = slow_views(behind_head, ends, exact_model, texts, readout)
    other = slow_views(behind_both, ends, peer, texts, readout)
    first, within = slow_losses(*own)
    second, peer_within = slow_losses(*other)
    across = slow_logits(own[0], other[1], other[0]), slow_logits(other[0], own[1], own[0])
    cooperation = slow_divergence(within, peer_within) + slow_divergence(*across)
    expected = first + second + COOPERATION * cooperation
    output = method(batch)
    assert output.parts["cooperation"].item() == pytest.approx(cooperation.item(), abs=1e-6)
    assert slow_divergence(within, peer_within).item() > 5e-4, "premise: the networks differ"
    turned = slow_divergence(peer_within, within) + slow_divergence(*across[::-1])
    assert abs(cooperation.item() - turned.item()) > 1e-5, "premise: the direction"
    twins = (method.encoder, exact_model), (method.peer, peer)
    heads = (method.head, head), (method.pooler, pooler)
    assert_same_step(output, expected, *twins, *heads)


def test_without_cooperation_there_is_one_network(make, batch):
    method = make(cooperation_weight=0.0)
    assert {name.split(".")[0] for name in method.state_dict()} == {"encoder", "head"}
    output = method(batch)
    parts = {name: part.item() for name, part in output.parts.items()}
    assert output.loss.item() == pytest.approx(parts["contrastive"] + GROUP * parts["group"])
    assert parts.keys() == {"positive_cosine", "contrastive", "group"}


def test_the_networks_begin_equal_but_for_the_pooler(encoder_folder, tiny_settings):
    settings = tiny_settings(encoder_folder, {"method.name": "pcl", **BARE})
    backbone = load_backbone(encoder_folder)
    method = build_method(backbone, settings)
    for name, weight in backbone.model.state_dict().items():
        torch.testing.assert_close(method.peer.state_dict()[name], weight, msg=name)
    torch.testing.assert_close(method.pooler.state_dict(), backbone.model.pooler.state_dict())
    assert method.pooler.dense.weight.requires_grad
    backbone.model.pooler = None
    assert build_method(backbone, settings).pooler.dense.weight.std().item() < 0.03


def test_both_networks_have_dropout(make, batch):
    method = make(dropout=0.3).train()
    assert method.peer.training
    first, second = (method(batch).parts["cooperation"].item() for _ in range(2))
    assert first != second
    assert method.eval()(batch).parts["cooperation"].item() not in (first, second)


@pytest.mark.parametrize("share", [0.2, 0.9])
def test_the_positives_are_what_their_names_say(make, share):
    rows = random_rows([0, 1, 2, 5, 20], seed=1)
    method = make(share=share)
    assert tuple(pcl.AUGMENT) == AUGMENTATIONS
    texts = method.augmented(rows)
    for name, made in zip(AUGMENTATIONS * 2, texts, strict=True):
        for row, text in zip(rows, made, strict=True):
            changed = min(round(share * len(row)), max(len(row) - 1, 0))
            if name == "shuffle":
                assert sorted(text) == sorted(row)
            elif name == "invert":
                assert text.tolist() == row.tolist()[::-1]
            elif name == "delete":
                assert text.tolist() == [t for t in row if t in text]
                assert len(text) == len(row) - changed
            else:
                assert len(text) == len(row) + changed
                assert list(dict.fromkeys(text)) == row.tolist(), "right behind its first"
    for name, first, second in zip(AUGMENTATIONS, texts[:4], texts[4:], strict=True):
        assert (first[4].tolist() == second[4].tolist()) == (name == "invert"), "drawn anew"


def test_a_positive_never_exceeds_the_encoder(make):
    method = make()
    room = method.backbone.max_tokens - 2
    rows = Ragged.from_lists([np.full(room, 7), np.full(room - 1, 9)])
    assert torch.isfinite(method(Batch(rows)).loss)
    assert max(text.lengths.max() for text in method.augmented(rows)) == room
