"""What all methods do alike, and what several of them share."""

from __future__ import annotations

import copy
import zlib

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from benchmarks.method_table import ALL_METHODS
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.errors import UserError
from cotbert_core.method_settings import METHOD_SETTINGS
from cotbert_core.methods import build_method
from cotbert_core.methods.arccse import masked_spans
from cotbert_core.methods.consert import kept_features, shuffled_positions
from cotbert_core.methods.esimcse import repeat_tokens
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.training.masking import Masking
from cotbert_core.training.step import make_optimizer, train_step
from cotbert_core.training.token_numbers import TokenNumbers
from tests.core.method_table import METHODS, OTHERS, as_encoder, random_rows
from tests.core.slow_reference import gradients

every_method = pytest.mark.parametrize("name", METHODS)
# The settings that the slow reference of a method does not apply itself.
CHANGES = [
    ("arccse", {"less_masked": 0.2, "more_masked": 0.4}),
    ("arccse", {"seed": 1}),
    ("consert", {"shuffle": False}),
    ("dclr", {"seed": 1}),
    ("pcl", {"augmentations": "shuffle,invert,delete"}),
    ("pcl", {"seed": 1}),
]
# What a method adds to the loss only if its views differ is seen with these.
BASES = {
    "arccse": {"method.triplet_margin": 0.3, "method.more_masked": 0.6},
    "dclr": {"method.noise": 1.5, "method.noise_steps": 3, "method.noise_step_size": 2.0},
}


def test_no_method_is_left_out():
    assert set(ALL_METHODS) == set(METHOD_SETTINGS)


@pytest.mark.parametrize(("name", "changes"), CHANGES, ids=str)
def test_every_setting_matters(start, name, changes):
    changes = {key if key == "seed" else f"method.{key}": value for key, value in changes.items()}
    base, losses = BASES.get(name, {}), []
    for given in (base, base | changes):
        method, _, batch = start(name, **given)
        method.step = 3
        losses.append(method(batch).loss.item())
    assert abs(losses[0] - losses[1]) > 1e-4


def without_dropout(name):
    """Settings that leave a method no random numbers of torch's."""
    return {"method.deletion": 0.0} if name == "tsdae" else {}


# Texts that are encoded in a step, and templates of which each distinct length is.
ENCODED = [
    ("cot-bert", {}, 3, 3),
    ("promptbert", {}, 2, 2),
    ("promptbert", {"templates.positive": "cot-bert/anchor"}, 2, 1),
    ("promptbert-supervised", {}, 3, 1),
    ("denosent", {}, 2, 0),
    ("denosent", {"method.objective": "generative"}, 1, 0),
    ("simcse", {}, 2, 0),
    ("sncse", {}, 3, 0),
    ("pcl", {}, 6, 0),
]


@pytest.mark.parametrize(("name", "changes", "texts", "biases"), ENCODED, ids=str)
def test_each_text_is_encoded_once_and_all_together(
    start, monkeypatch, name, changes, texts, biases
):
    method, _, batch = start(name, **changes)
    seen, calls, real = [], [], method._encode_rows
    monkeypatch.setattr(method, "_encode_rows", lambda *a, **k: calls.append(1) or real(*a, **k))
    method.encoder.register_forward_hook(lambda *a: seen.append(len(a[-1].last_hidden_state)))
    method(batch)
    distinct = len(set(batch.sentences.lengths.tolist()))
    assert 1 < distinct < len(batch), "premise"
    assert sum(seen) == texts * len(batch) + biases * distinct
    assert len(calls) == (2 if name == "pcl" else 1), "once for each network"


DENOSENT = (
    {"method.projected": False, "method.readout": "mean", "templates.anchor": None},
    {"method.objective": "contrastive"},
    {"method.objective": "contrastive", "method.projected": False},
    {"method.objective": "generative"},
)


@pytest.mark.parametrize(
    ("name", "changes"),
    [*((name, {}) for name in METHODS), *(("denosent", changes) for changes in DENOSENT)],
    ids=str,
)
def test_every_weight_that_is_trained_has_a_gradient(start, name, changes):
    """DDP waits forever for a weight without one; the pooler is the exception that it knows."""
    method, _, batch = start(name, **without_dropout(name), **changes)
    method(batch).loss.backward()
    without = {n for n, p in method.named_parameters() if p.requires_grad and p.grad is None}
    assert all(".pooler.dense." in name for name in without)
    assert max(g.abs().max() for g in gradients(method).values()) > 1e-3


@pytest.mark.parametrize(("name", "more"), [("cot-bert", "bias rows"), ("denosent", "decoder")])
def test_a_profile_has_the_sections_of_a_step(start, name, more):
    method, settings, batch = start(name)
    with torch.profiler.profile() as trace:
        train_step(method, batch, make_optimizer(method, settings.optimizer), settings, 1, 2)
    names = {event.key for event in trace.key_averages()}
    assert {"forward", "loss", "backward", "optimizer", more} <= names


@every_method
def test_a_checkpoint_sets_every_weight_that_was_not_initialized(start, sentences, name):
    method, settings, _ = start(name)
    made = build_method(load_backbone(settings.encoder), settings, initialized=False)
    made.load_state_dict(method.state_dict())
    for key, weight in made.state_dict().items():
        assert torch.equal(weight, method.state_dict()[key]), key
    encoders = map(as_encoder, (method, made))
    expected, found = (e.encode(sentences, precision="fp32") for e in encoders)
    np.testing.assert_array_equal(found, expected)


@every_method
def test_a_resumed_run_has_the_curve_of_the_whole(start, name):
    """From the state after the first of three steps, with queues and second networks."""

    def run(method, settings, batch, optimizer, steps):
        losses = []
        for step in steps:
            method.step = step
            losses.append(train_step(method, batch, optimizer, settings, step, 3).loss)
        return losses

    changes = {"optimizer.learning_rate": 1e-2, **without_dropout(name)}
    method, settings, batch = start(name, **changes)
    method.train(name != "tsdae")  # which deletes other words in each step
    optimizer = make_optimizer(method, settings.optimizer)
    run(method, settings, batch, optimizer, [1])
    state = copy.deepcopy((method.state_dict(), optimizer.state_dict()))
    whole = run(method, settings, batch, optimizer, [2, 3])

    def resumed(keep):
        method, settings, batch = start(name, **changes)
        method.train(name != "tsdae")
        optimizer = make_optimizer(method, settings.optimizer)
        method.load_state_dict({k: v for k, v in state[0].items() if keep(k)}, strict=False)
        optimizer.load_state_dict(state[1])
        return run(method, settings, batch, optimizer, [2, 3])

    assert resumed(lambda key: True) == whole
    if name in ("esimcse", "pcl"):
        trained = resumed(lambda key: key.startswith(("encoder.", "head.")))
        assert trained[0] != pytest.approx(whole[0], abs=1e-3), "premise: the rest matters"


# What is read after training: readout, denoising and head; other libraries cannot read all of it.
READINGS = dict.fromkeys(METHODS, ("mask", "none", None)) | dict.fromkeys(
    ("simcse", "promcse", "tsdae", "esimcse", "arccse", "dclr", "diffcse", "rankcse", "pcl"),
    ("cls", "none", None),
)
READINGS |= dict.fromkeys(("mlm", "consert"), ("mean", "none", None))
READINGS["promptbert-supervised"] = ("mask", "position", "transform")
READ_HERE_ALONE = ("promptbert-supervised", "promcse")


# The corpus's further texts that a method does not use.
UNUSED = {
    "promptbert": "augmented and negative",
    "denosent": "negative",
    "sncse": "augmented and negative",
    "tsdae": "augmented and negative",
}


@pytest.mark.parametrize(("name", "unused"), UNUSED.items())
def test_texts_that_a_method_does_not_use_are_noted(start, name, unused):
    method, _, batch = start(name)
    wanted = f"method {name} does not use the corpus's {unused} texts"
    assert wanted in method.notes(batch.columns)
    assert wanted not in method.notes([])


@every_method
@pytest.mark.filterwarnings("ignore:only cotbert_core")
def test_a_saved_folder_is_the_trained_encoder_everywhere(start, sentences, tmp_path, name):
    from sentence_transformers import SentenceTransformer

    method, settings, batch = start(name, **{"optimizer.learning_rate": 1e-2})
    before = method.sentence_encoder.encode(sentences, precision="fp32")
    train_step(method, batch, make_optimizer(method, settings.optimizer), settings, 1, 2)
    encoder = as_encoder(method)
    pooling, method_name = encoder.pooling, settings.method.name
    assert (pooling.readout, pooling.denoise, pooling.head) == READINGS[name]
    assert (pooling.method, pooling.settings["encoder"]) == (method_name, settings.encoder)
    prompted = READINGS[name][0] == "mask"
    assert (pooling.full_stop, pooling.blank) == (prompted, not prompted)
    if name != "optiprompt":
        template = settings.templates.anchor and method.template("anchor")
        assert pooling.template == template
    expected = encoder.encode(sentences, precision="fp32")
    assert np.abs(expected - before).max() > 1e-3, "premise: the step moved them"
    encoder.save_pretrained(tmp_path)
    again = SentenceEncoder.from_pretrained(tmp_path)
    assert again.pooling == pooling
    np.testing.assert_array_equal(again.encode(sentences, precision="fp32"), expected)
    if name in READ_HERE_ALONE:
        with pytest.raises(ImportError, match="cotbert_core"):
            SentenceTransformer(str(tmp_path), device="cpu")
        return
    theirs = SentenceTransformer(str(tmp_path), device="cpu").encode(sentences)
    np.testing.assert_allclose(theirs, expected, atol=1e-5, rtol=0)
    if name not in ("mlm", "optiprompt"):
        assert set(load_file(tmp_path / "model.safetensors")) == set(method.encoder.state_dict())


def further_encoders(method):
    """The models of OTHERS, which are not trained."""
    if hasattr(method, "generator"):
        return [method.generator[0].model]
    opened = getattr(method, "teachers", None) or [method.complement]
    return [encoder.backbone.model for encoder in opened]


@pytest.mark.parametrize("name", OTHERS)
def test_further_encoders_stay_as_they_are(start, headed, name):
    method, settings, batch = start(name)
    method.train()(batch).loss.backward()
    own = {id(weight) for weight in method.parameters()}
    for model in further_encoders(method):
        assert all(p.grad is None and id(p) not in own for p in model.parameters())
        if name != "diffcse":
            assert not model.training
    assert {*settings.encoders.values()} == {settings.encoder, headed}


@pytest.mark.parametrize("name", OTHERS)
def test_a_further_encoder_that_cannot_be_used_is_refused(start, roberta_folder, name):
    (setting,) = OTHERS[name]("")
    rule = "another tokenizer than encoder .* the same vocabulary"
    for other, why in ((roberta_folder, rule), ("./none", "does not exist")):
        with pytest.raises(UserError, match=rf"{setting}: encoder .*'{other}' .*{why}"):
            start(name, **{setting: other})


@pytest.mark.parametrize("name", ["arccse", "diffcse", "mlm", "sncse"])
def test_an_encoder_without_a_mask_is_refused(start, name):
    _, settings, _ = start(name)
    backbone = load_backbone(settings.encoder)
    backbone.tokenizer.hf.mask_token = None
    with pytest.raises(UserError, match="has no mask token, which"):
        build_method(backbone, settings)


CONTINUES = np.arange(1000) % 3 == 0
# What each method makes of sentences, by their tokens, the seed and the step alone.
MADE = {
    "arccse": lambda rows, seed, step: masked_spans(
        rows, CONTINUES, 4, (0.2, 0.4), TokenNumbers(rows, seed, step)
    )[1],
    "consert's positions": lambda rows, seed, step: shuffled_positions(
        TokenNumbers(rows, seed, step), rows.lengths
    ),
    "consert's features": lambda rows, seed, step: kept_features(
        TokenNumbers(rows, seed, step), 0.5, 20
    ),
    "esimcse": lambda rows, seed, step: repeat_tokens(rows, 0.5, seed, step),
    "mlm": lambda rows, seed, step: Masking(0.3, 4, 1000)(rows, seed, step).ids,
    "mlm's words": lambda rows, seed, step: Masking(0.3, 4, 1000, CONTINUES)(rows, seed, step).ids,
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_what_becomes_of_a_row_does_not_depend_on_the_others(make):
    rows = random_rows([12, 12, 12, 12])

    def lists(rows, seed=3, step=11):
        return [row.tolist() for row in make(rows, seed, step)]

    whole = lists(rows)
    assert [row for i in range(4) for row in lists(rows.take([i]))] == whole == lists(rows)
    assert lists(rows, step=12) != whole != lists(rows, seed=4)


def splitmix64(state):
    z = (state + 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return z ^ z >> 31


def test_the_random_numbers_of_tokens_stay_the_same():
    """Else a run would change when a later version resumes it."""
    assert splitmix64(0) == 0xE220A8397B1DCDAF, "premise: as published"
    rows = Ragged.from_lists([[7, 8, 9]])
    row = splitmix64(splitmix64(zlib.crc32(rows.flat.tobytes()) + splitmix64(3)) + 11)
    expected = [(splitmix64(splitmix64(row + place) + 5) >> 11) / 2**53 for place in range(3)]
    numbers = TokenNumbers(rows, 3, 11)
    assert numbers.of_tokens(5).tolist() == expected
    assert numbers.of_rows(5).tolist() == expected[:1]
