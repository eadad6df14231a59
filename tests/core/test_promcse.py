"""PromCSE: prefixes against a head and a token at a time, its hinge loss, and its model folders."""

from __future__ import annotations

import json
import math
from importlib import util

import numpy as np
import pytest
import torch
from made_encoders import with_encoders
from safetensors.torch import load_file, save_file

from benchmarks.method_table import BARE
from cotbert_core import SentenceEncoder, UserError
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.merging import merge_backbones
from cotbert_core.encoder.prefixes import LENGTH, PREFIX_FILE, prefix_length, prefixes_of
from cotbert_core.exporting import openvino_model
from cotbert_core.methods import build_method, promcse
from cotbert_core.training.batches import Batch
from cotbert_core.training.flops import encoder_flops
from cotbert_core.training.step import make_optimizer, train_step
from pipelines.exporting.export import _check_exportable
from tests.core import slow_reference
from tests.core.slow_reference import assert_same_step, cosine, embedded, exact

TEMPERATURE, LENGTH_HERE = 0.5, 3
of_bert = pytest.mark.parametrize("encoder_folder", ["bert"], indirect=True)
TEXTS = ["A man is playing the guitar", "oil.", "", "two words", "a [MASK] that was typed"]


@pytest.fixture
def make(make_bare):
    """A method whose prefixes are large enough to matter, unless large is False."""

    def build(large=True, **changes):
        method = make_bare("promcse", **{"length": LENGTH_HERE, **changes})
        for prefix in prefixes_of(method.encoder) if large else ():
            torch.nn.init.normal_(prefix.vectors)
        return method

    return build


def slow_hidden(model, row, prefixes):
    """(L, D) of one row, a head and a token at a time. prefixes: (2, H, P, d) of each layer."""
    states = embedded(model, row)[0]
    for layer, prefix in zip(model.encoder.layer, prefixes, strict=True):
        own, size = layer.attention.self, prefix.shape[-1]
        parts = [part(states).split(size, dim=1) for part in (own.query, own.key, own.value)]
        mixed = []
        for head, (query, key, value) in enumerate(zip(*parts, strict=True)):
            keys, values = (
                torch.cat([trained[head], read])
                for trained, read in zip(prefix, (key, value), strict=True)
            )
            tokens = []
            for token in query:
                weights = torch.stack([torch.exp(token @ k / math.sqrt(size)) for k in keys])
                tokens.append(sum(w * v for w, v in zip(weights, values, strict=True)))
                tokens[-1] = tokens[-1] / weights.sum()
            mixed.append(torch.stack(tokens))
        states = layer.attention.output(torch.cat(mixed, dim=1), states)
        states = layer.output(layer.intermediate(states), states)
    return states


def slow_vectors(model, head, prefixes, ends, sentences, readout):
    found = []
    for sentence in sentences:
        states = slow_hidden(model, [ends[0], *map(int, sentence), ends[1]], prefixes)
        raw = states[0] if readout == "cls" else states.mean(dim=0)
        found.append(slow_reference.tanh_head(head, raw))
    return found


def slow_hinge(margin, anchor, positive, negative):
    total = 0.0
    for i, own in enumerate(anchor):
        others = [cosine(own, v) for j, v in enumerate(positive) if j != i]
        hardest = max(others + [cosine(own, v) for v in negative])
        total = total + max(0 * hardest, margin + hardest - cosine(own, positive[i]))
    return total / len(anchor)


def exact_prefixes(method):
    return [p.vectors.detach().double().requires_grad_() for p in prefixes_of(method.encoder)]


@with_encoders(
    "readout attention labelled",
    ("bert", "mean", "plain", False),
    ("bert", "cls", "eager", False),
    ("roberta", "mean", "sdpa", False),
    ("roberta", "cls", "auto", True),
)
def test_loss_and_gradients_equal_a_token_at_a_time(
    make, exact_model, triples, ends, attention, readout, labelled
):
    weights = {"hinge_weight": 2.0, "hinge_margin": 0.3}
    method = make(attention=attention, readout=readout, triples=labelled, **weights)
    head, prefixes = exact(method.head), exact_prefixes(method)
    ids = triples.sentences.take([1, 3, 4])
    triples = Batch(ids, ids.take([1, 2, 0]), ids.take([2, 0, 1]))
    texts = (ids, triples.augmented, triples.negative) if labelled else (ids, ids)
    views = [slow_vectors(exact_model, head, prefixes, ends, t, readout) for t in texts]
    expected = slow_reference.info_nce(TEMPERATURE, *views)
    if labelled:
        hinge = slow_hinge(0.3, *views)
        assert hinge.item() > 0.1, "premise"
        expected = expected + 2 * hinge
    assert_same_step(method(triples), expected, (method.head, head))
    trained = {n for n, p in method.named_parameters() if p.grad is not None}
    assert trained == {n for n, p in method.named_parameters() if p.requires_grad}
    assert all("prefix.vectors" in n or n.startswith("head.") for n in trained)
    for own, slow in zip(prefixes_of(method.encoder), prefixes, strict=True):
        torch.testing.assert_close(own.vectors.grad.double(), slow.grad, atol=1e-5, rtol=1e-3)
        assert slow.grad.abs().max() > 1e-4, "premise"


def test_dropout_is_another_in_each_row(make, ids):
    method = make(dropout=0.5).train()
    prefix = prefixes_of(method.encoder)[0]
    keys, values = prefix(2)
    assert prefix.dropout.p == 0.5
    assert not torch.equal(keys[0], keys[1])
    assert not torch.equal(values[0], values[1])
    first, second = (method(Batch(ids)).loss.item() for _ in range(2))
    assert first != second
    assert torch.equal(*prefix.eval()(2)[0])


@of_bert
def test_prefixes_begin_small_and_the_encoder_stays(make, ids, encoder_folder):
    method = make(large=False, length=50)
    first = torch.stack([p.vectors.detach() for p in prefixes_of(method.encoder)])
    deviation = method.encoder.config.initializer_range
    assert first.std().item() == pytest.approx(deviation, rel=0.1)
    quick = method.settings.optimizer.model_copy(update={"learning_rate": 0.05})
    optimizer = make_optimizer(method, quick)
    settings = method.settings.model_copy(update={"optimizer": quick})
    train_step(method, Batch(ids), optimizer, settings, 1, 2)
    moved = torch.stack([p.vectors.detach() for p in prefixes_of(method.encoder)])
    assert (moved - first).abs().mean() > 1e-3
    weights = method.encoder.state_dict()
    for name, weight in load_backbone(encoder_folder).model.state_dict().items():
        assert torch.equal(weights[name], weight), name


@of_bert
def test_attention_to_prefixes_counts_as_work(make, encoder_folder):
    method, lengths = make(), np.array([5, 9])
    bare = load_backbone(encoder_folder).model.requires_grad_(False)
    for backward, passes in ((False, 1), (True, 3)):
        counted = (encoder_flops(m, lengths, backward=backward) for m in (method.encoder, bare))
        with_prefixes, without = counted
        assert with_prefixes - without == passes * 4 * 14 * LENGTH_HERE * 32 * 2


@pytest.fixture
def saved(make, tmp_path):
    """A method and the folder of its encoder."""
    method = make()
    with pytest.warns(UserWarning, match="only cotbert_core.*attend to trained prefixes"):
        method.sentence_encoder.save_pretrained(tmp_path / "saved")
    return method, tmp_path / "saved"


def encode(encoder):
    return encoder.encode(TEXTS, precision="fp32")


def test_a_folder_gives_the_same_vectors_and_other_libraries_refuse_it(
    saved, encoder_folder, tmp_path
):
    from sentence_transformers import SentenceTransformer
    from transformers import AutoTokenizer

    method, folder = saved
    expected = encode(method.sentence_encoder)
    again = SentenceEncoder.from_pretrained(folder)
    np.testing.assert_array_equal(encode(again), expected)
    bare = SentenceEncoder.from_pretrained(encoder_folder, readout="cls")
    assert np.abs(encode(bare) - expected).max() > 0.1, "premise"
    again.backbone = again.backbone.packed()  # as `cotbert serve` does
    np.testing.assert_array_equal(encode(again), expected)
    for open_there in (SentenceTransformer, AutoTokenizer.from_pretrained):
        with pytest.raises(Exception, match="cotbert_core"):
            open_there(str(folder))
    assert "**Only `cotbert_core` reads this folder**" in (folder / "README.md").read_text()
    assert json.loads((folder / "cotbert.json").read_text())["format"] == 2
    assert "1_Pooling" in [path.name for path in folder.iterdir()], "servers refuse it by this"
    names = load_file(folder / "model.safetensors")
    assert not [name for name in names if "prefix" in name], "other programs would skip them"
    with pytest.warns(UserWarning, match="prefixes"):
        again.save_pretrained(tmp_path / "second")
    np.testing.assert_array_equal(
        encode(SentenceEncoder.from_pretrained(tmp_path / "second")), expected
    )
    np.testing.assert_array_equal(encode(method.sentence_encoder), expected)


def test_a_training_continues_with_the_prefixes(saved, make, tiny_settings, ids):
    method, folder = saved
    more = make(folder=str(folder), large=False)
    for own, first in zip(*map(prefixes_of, (more.encoder, method.encoder)), strict=True):
        assert torch.equal(own.vectors, first.vectors)
    with pytest.raises(UserError, match=r"length is 2 and encoder .* of 3 vectors: set method"):
        make(folder=str(folder), length=2)
    simcse = build_method(
        load_backbone(str(folder), dropout=0.0),
        tiny_settings(str(folder), {"method.name": "simcse", **BARE}),
    )
    simcse(Batch(ids)).loss.backward()
    assert all(p.vectors.grad.abs().max() > 0 for p in prefixes_of(simcse.encoder))


DAMAGES = {
    "missing": None,
    "another number": {"vectors": torch.zeros(2, 2, 2, 5, 16)},
    "another name": {"prefix": torch.zeros(2, 2, 2, LENGTH_HERE, 16)},
    "integers": {"vectors": torch.zeros(2, 2, 2, LENGTH_HERE, 16, dtype=torch.int32)},
}


@of_bert
@pytest.mark.parametrize("damage", [*DAMAGES, "no tensors", "a number that is a text"])
def test_a_folder_without_its_prefixes_is_refused(saved, damage):
    _, folder = saved
    (folder / PREFIX_FILE).unlink()
    if damage == "no tensors":
        (folder / PREFIX_FILE).write_bytes(b"\x01\x02")
    elif damage == "a number that is a text":
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {LENGTH: "3"}))
    elif DAMAGES[damage] is not None:
        save_file(DAMAGES[damage], folder / PREFIX_FILE)
    with pytest.raises(UserError, match=r"needs the trained prefixes of .* copy the whole folder"):
        load_backbone(str(folder))


@of_bert
def test_what_cannot_have_prefixes_is_refused(saved, make, encoder_folder, monkeypatch):
    method, folder = saved
    for name in (encoder_folder, str(folder)):
        with pytest.raises(UserError, match=r"'unpadded' and encoder .* set attention=auto"):
            make(folder=name, attention="unpadded")
    encoder = SentenceEncoder.from_pretrained(folder)
    with pytest.raises(UserError, match="attends to trained prefixes, which the graph would"):
        _check_exportable("mine", encoder)
    monkeypatch.setattr(util, "find_spec", lambda name: True)
    with pytest.raises(UserError, match="which OpenVINO would leave out: run it with torch"):
        openvino_model.check_openvino(encoder)
    with pytest.raises(UserError, match=r"second encoder has the tensor .*other than promcse"):
        merge_backbones(load_backbone(encoder_folder), encoder.backbone, 0.5)
    other = load_backbone(encoder_folder)
    other.model.config.model_type = "distilbert"
    with pytest.raises(UserError, match="of the family 'distilbert', whose attention cannot"):
        promcse.PromCse(other, method.settings)
    assert prefix_length(load_backbone(encoder_folder).model) == 0
