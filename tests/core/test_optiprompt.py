"""OptiPrompt: only the template's own tokens move, and a saved folder carries them everywhere."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from cotbert_core import SentenceEncoder
from cotbert_core.encoder.backbone import Backbone, load_backbone
from cotbert_core.encoder.heads import HEADS
from cotbert_core.methods import build_method
from cotbert_core.templates.template_texts import resolve_template
from cotbert_core.templates.tokenizing import SentenceTokenizer
from cotbert_core.templates.wrapping import BoundTemplate
from cotbert_core.training.batches import Batch
from cotbert_core.training.step import make_optimizer, train_step
from tests.core import slow_reference
from tests.core.slow_reference import assert_same_gradients, exact, wide_head

NONE = {"templates.positive": None, "templates.negative": None}
TYPED = ["A man", "[PROMPT0] typed", "[PROMPT0][PROMPT1] [MASK] <mask>", "[PROMPT0]", "oil."]
# A token twice, an unknown one, masks in three places, one of them before the slot.
TEMPLATES = {
    "manual": "{manual}",
    "twice": "the man : ' [X] ' the man means the [MASK] .",
    "unknown": "This \u4e2d sentence : ' [X] ' means [MASK] .",
    "stages": "[MASK] : ' [X] ' means [MASK] , so it is [MASK] .",
}


@pytest.fixture
def manual(family):
    return "promptroberta/anchor" if family == "cot-roberta" else "promptbert/manual"


@pytest.fixture(params=TEMPLATES)
def template(request, manual):
    return TEMPLATES[request.param].format(manual=manual)


@pytest.fixture
def settings_of(encoder_folder, tiny_settings, manual):
    def make(**changes):
        flat = {"method.name": "optiprompt", **NONE, "templates.anchor": manual, **changes}
        return tiny_settings(encoder_folder, flat)

    return make


@pytest.fixture
def make(encoder_folder, settings_of):
    def build(folder=encoder_folder, **changes):
        return wide_head(settings_of(**changes), folder)

    return build


def train(method, sentences, steps=4, **changes):
    ids = method.backbone.tokenizer(sentences, 8)
    quick = {"learning_rate": 0.05, "schedule": "constant", **changes}
    optimizer_settings = method.settings.optimizer.model_copy(update=quick)
    settings = method.settings.model_copy(update={"optimizer": optimizer_settings})
    optimizer = make_optimizer(method.train(), optimizer_settings)
    for step in range(1, steps + 1):
        train_step(method, Batch(ids), optimizer, settings, step, steps)
    return method.eval()


def as_encoder(method):
    return SentenceEncoder(method.finished, method.pooling, method.kept_head)


def encode(encoder, sentences):
    return encoder.encode(sentences, precision="fp32")


def test_it_begins_exactly_as_the_manual_template(make, encoder_folder, sentences, template):
    method = make(**{"templates.anchor": template})
    plain = SentenceEncoder.from_pretrained(encoder_folder, template=template)
    expected = encode(plain, sentences)
    assert expected.std(axis=0).mean() > 1e-2, "premise: sentences differ"
    for encoder in (method.sentence_encoder, as_encoder(method)):
        assert np.array_equal(encode(encoder, sentences), expected)


def test_the_new_tokens_stand_for_the_templates_one_for_one(make, encoder_folder, template):
    method = make(**{"templates.anchor": template})
    plain = load_backbone(encoder_folder)
    bound = BoundTemplate.bind(resolve_template(template), plain.tokenizer.hf)
    first_own = plain.model.get_input_embeddings().num_embeddings
    rows = method.encoder.get_input_embeddings().rows
    new = iter(range(first_own, first_own + len(rows)))
    ends = {0: {bound.before[0]}, 1: {bound.after[-1]}}
    for side, (own, old) in enumerate(
        [(method.anchor.before, bound.before), (method.anchor.after, bound.after)]
    ):
        kept = {bound.mask_id} | ends[side]
        assert own == tuple(token if token in kept else next(new) for token in old)
    assert next(new, None) is None
    words = plain.model.get_input_embeddings().weight
    replaced = [t for t in (*bound.before[1:], *bound.after[:-1]) if t != bound.mask_id]
    assert torch.equal(rows, words[replaced])
    assert method.anchor.stages == bound.stages
    if template == TEMPLATES["twice"]:
        assert len(set(replaced)) < len(replaced) == len(rows), "premise: a token is there twice"


@pytest.mark.parametrize("head", HEADS)
def test_loss_and_gradients_equal_a_sentence_at_a_time(make, exact_model, sentences, head):
    method = make(**{"method.head": head})
    ids = method.backbone.tokenizer(sentences, 8)
    table = exact_model.get_input_embeddings()
    exact_model.requires_grad_(False)
    prompts = copy.deepcopy(method.encoder.get_input_embeddings()).double()
    prompts.table = table
    exact_model.set_input_embeddings(prompts)
    slow_head = exact(method.head)
    views = slow_reference.vectors(exact_model, slow_head, method.anchor, ids, "none")
    expected = slow_reference.info_nce(0.5, views, views)
    output = method(Batch(ids))
    assert output.loss.item() == pytest.approx(expected.item(), abs=1e-5)
    assert output.parts["positive_cosine"].item() == pytest.approx(1, abs=1e-5)
    output.loss.backward()
    expected.backward()
    assert_same_gradients(method.head, slow_head)
    assert_same_gradients(method.encoder, exact_model)
    assert [n for n, p in method.encoder.named_parameters() if p.grad is not None] == [
        "embeddings.word_embeddings.rows"
    ]


def test_a_token_of_the_template_does_not_stand_for_itself_in_a_sentence(make, sentences):
    """Moving the template's `the` leaves the sentence's alone."""
    method = make(**{"templates.anchor": TEMPLATES["twice"]})
    slots = method.encoder.get_input_embeddings()
    word = method.backbone.tokenizer(["the"], 8).flat.tolist()
    before = slots(torch.tensor(word)).clone()
    with torch.no_grad():
        slots.rows.add_(1.0)
    assert torch.equal(slots(torch.tensor(word)), before)
    merged = as_encoder(method).backbone.model.get_input_embeddings()
    everything = torch.arange(merged.num_embeddings)
    assert torch.equal(merged(everything), slots(everything))
    assert torch.equal(merged.weight, slots.weight)


@pytest.mark.parametrize("weight_decay", [0.0, 0.5])
@pytest.mark.parametrize("head", HEADS)
def test_steps_move_the_prompt_and_the_head_alone(make, sentences, head, weight_decay):
    method = make(dropout=0.1, **{"method.head": head})
    before = {n: w.clone() for n, w in method.state_dict().items()}
    train(method, sentences, weight_decay=weight_decay)
    after = method.state_dict()
    moved = {n for n in before if not torch.equal(before[n], after[n])}
    rows = "encoder.embeddings.word_embeddings.rows"
    assert moved == {rows} | {n for n in before if n.startswith("head.")}
    assert (after[rows] - before[rows]).abs().amax(dim=1).min() > 1e-3, "each of them"
    assert {n for n, p in method.named_parameters() if p.requires_grad} == moved


def test_the_saved_encoder_is_the_old_one_with_new_rows(make, encoder_folder, sentences, tmp_path):
    method = train(make(dropout=0.1), sentences)
    as_encoder(method).save_pretrained(tmp_path / "saved")
    old, new = (load_backbone(str(f)).model for f in (encoder_folder, tmp_path / "saved"))
    words = "embeddings.word_embeddings.weight"
    for name, weight in old.state_dict().items():
        found = new.state_dict()[name]
        assert torch.equal(found[: len(weight)] if name == words else found, weight), name
    own = method.encoder.get_input_embeddings().rows
    assert torch.equal(new.state_dict()[words][len(old.state_dict()[words]) :], own)
    assert new.config.vocab_size == len(new.state_dict()[words])


def test_training_lowers_the_loss(make, sentences):
    fresh, trained = make(dropout=0.1), train(make(dropout=0.1), sentences, steps=20)
    ids = fresh.backbone.tokenizer(sentences, 8)
    with torch.no_grad():
        before, after = (m.eval()(Batch(ids)).loss.item() for m in (fresh, trained))
    assert after < before - 0.05


def test_a_vocabulary_shorter_than_its_table_gets_spare_tokens(make, encoder_folder, settings_of):
    backbone = load_backbone(encoder_folder)
    size = backbone.model.get_input_embeddings().num_embeddings
    backbone.model.resize_token_embeddings(size + 5, mean_resizing=False)
    method = build_method(backbone, settings_of())
    assert method.encoder.get_input_embeddings().table.num_embeddings == size + 5
    own = [t for t in method.anchor.before + method.anchor.after if t >= size]
    assert own == list(range(size + 5, size + 5 + len(own)))
    plain = SentenceEncoder.from_pretrained(encoder_folder, template=method.template("anchor"))
    assert np.array_equal(encode(as_encoder(method), TYPED), encode(plain, TYPED))


def test_the_encoder_given_keeps_its_tokenizer(encoder_folder, settings_of):
    backbone = load_backbone(encoder_folder)
    words = len(backbone.tokenizer.hf)
    method = build_method(backbone, settings_of())
    assert len(backbone.tokenizer.hf) == words
    assert isinstance(method.backbone, Backbone)
    assert isinstance(method.backbone.tokenizer, SentenceTokenizer)
    assert len(method.backbone.tokenizer.hf) > words
