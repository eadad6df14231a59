"""OptiPrompt: only the template's own tokens move, and a saved folder carries them everywhere."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from made_encoders import with_encoders

from benchmarks.method_table import ALONE
from cotbert_core import SentenceEncoder, UserError
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.heads import HEADS
from cotbert_core.methods import build_method
from cotbert_core.saving.model_folder import READOUT_TOKEN
from cotbert_core.templates.template_texts import resolve_template
from cotbert_core.templates.wrapping import BoundTemplate
from cotbert_core.training.batches import Batch
from cotbert_core.training.step import make_optimizer, train_step
from tests.core import slow_reference
from tests.core.method_table import as_encoder
from tests.core.slow_reference import assert_same_step, exact, wide_head

TYPED = [
    "A man is playing the guitar",
    "[PROMPT0] typed",
    "[PROMPT0][PROMPT1] [MASK] <mask>",
    "[SPARE0] [READOUT] .",
    "oil.",
    "",
]
STAGES = "[MASK] : ' [X] ' means [MASK] , so it is [MASK] ."
# A token twice, an unknown one, masks in three places, one of them before the slot.
TEMPLATES = {
    "manual": "{manual}",
    "twice": "the man : ' [X] ' the man means the [MASK] .",
    "unknown": "This \u4e2d sentence : ' [X] ' means [MASK] .",
    "stages": STAGES,
}


@pytest.fixture
def manual(family):
    return "promptroberta/anchor" if family == "cot-roberta" else "promptbert/manual"


@pytest.fixture(params=TEMPLATES)
def template(request, manual):
    return TEMPLATES[request.param].format(manual=manual)


@pytest.fixture
def settings_of(encoder_folder, tiny_settings, manual):
    def make(folder=encoder_folder, **changes):
        flat = {"method.name": "optiprompt", **ALONE, "templates.anchor": manual, **changes}
        return tiny_settings(str(folder), flat)

    return make


@pytest.fixture
def make(settings_of):
    return lambda **changes: wide_head(settings_of(**changes))


@pytest.fixture
def trained(make, sentences):
    """A method after three steps; changes as those of the settings."""

    def build(**changes):
        quick = {"optimizer.learning_rate": 0.05, "optimizer.schedule": "constant"}
        method = make(**{"dropout": 0.1, **quick, **changes}).train()
        optimizer = make_optimizer(method, method.settings.optimizer)
        ids = method.backbone.tokenizer(sentences, 8)
        for step in (1, 2, 3):
            train_step(method, Batch(ids), optimizer, method.settings, step, 3)
        return method.eval()

    return build


def encode(encoder, sentences=TYPED):
    return encoder.encode(sentences, precision="fp32")


def test_a_template_without_words_is_refused(make):
    with pytest.raises(UserError, match=r"anchor is '\[X\] \[MASK\]' and .*: add words to it"):
        make(**{"templates.anchor": "[X] [MASK]"})


def token_ids(bound):
    """The template's tokens between the special ones at its ends, without masks."""
    return [t for t in bound.before[1:] + bound.after[:-1] if t != bound.mask_id]


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
    words, table = plain.model.get_input_embeddings(), method.encoder.get_input_embeddings()
    replaced = token_ids(bound)
    own = iter(range(words.num_embeddings, words.num_embeddings + len(replaced)))
    numbers = {bound.before[0], bound.mask_id, bound.after[-1]}
    for ours, theirs in zip(
        (method.anchor.before, method.anchor.after), (bound.before, bound.after), strict=True
    ):
        assert ours == tuple(token if token in numbers else next(own) for token in theirs)
    assert torch.equal(table.rows, words.weight[replaced])
    assert method.anchor.stages == bound.stages
    if template == TEMPLATES["twice"]:
        assert len(set(replaced)) < len(replaced), "premise: a token is there twice"
    assert len(plain.tokenizer.hf) < len(method.backbone.tokenizer.hf), "the one given stays"


@with_encoders("head", *zip(("bert", "roberta"), HEADS, strict=True))
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
    assert output.parts["positive_cosine"].item() == pytest.approx(1, abs=1e-5)
    assert_same_step(output, expected, (method.head, slow_head), (method.encoder, exact_model))
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


@with_encoders("weight_decay", ("bert", 0.5), ("roberta", 0.0))
def test_steps_move_the_prompt_and_the_head_alone(make, trained, weight_decay):
    before = make().state_dict()
    method = trained(**{"optimizer.weight_decay": weight_decay})
    after = method.state_dict()
    moved = {n for n in before if not torch.equal(before[n], after[n])}
    rows = "encoder.embeddings.word_embeddings.rows"
    assert moved == {rows} | {n for n in before if n.startswith("head.")}
    assert (after[rows] - before[rows]).abs().amax(dim=1).min() > 1e-3, "each of them"
    assert {n for n, p in method.named_parameters() if p.requires_grad} == moved


def test_a_vocabulary_shorter_than_its_table_gets_spare_tokens(make, encoder_folder, settings_of):
    backbone = load_backbone(encoder_folder)
    size = backbone.model.get_input_embeddings().num_embeddings
    backbone.model.resize_token_embeddings(size + 5, mean_resizing=False)
    method = build_method(backbone, settings_of())
    assert method.encoder.get_input_embeddings().table.num_embeddings == size + 5
    own = [t for t in method.anchor.before + method.anchor.after if t >= size]
    assert own == list(range(size + 5, size + 5 + len(own)))
    plain = SentenceEncoder.from_pretrained(encoder_folder, template=method.template("anchor"))
    assert np.array_equal(encode(as_encoder(method)), encode(plain))


def by_transformers(folder, stages):
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder).eval()
    inputs = tokenizer(TYPED, padding=True, return_tensors="pt")
    token = tokenizer.mask_token if stages == 1 else READOUT_TOKEN
    read = inputs["input_ids"] == tokenizer.convert_tokens_to_ids(token)
    with torch.no_grad():
        return model(**inputs).last_hidden_state[read].numpy()


@with_encoders("text", ("bert", STAGES), ("roberta", None))
def test_a_folder_is_read_the_same_everywhere(trained, encoder_folder, tmp_path, text):
    from sentence_transformers import SentenceTransformer

    method = trained(**({"templates.anchor": text} if text else {}))
    encoder = as_encoder(method)
    encoder.save_pretrained(tmp_path / "saved")
    expected = encode(encoder)
    assert np.array_equal(encode(method.sentence_encoder), expected)
    plain = SentenceEncoder.from_pretrained(encoder_folder, template=method.template("anchor"))
    assert np.abs(encode(plain) - expected).max() > 0.1, "premise: training moved it"
    again = SentenceEncoder.from_pretrained(tmp_path / "saved")
    assert (again.pooling, again.bound) == (encoder.pooling, encoder.bound)
    assert np.array_equal(encode(again), expected)
    theirs = SentenceTransformer(str(tmp_path / "saved"), device="cpu").encode(TYPED)
    np.testing.assert_allclose(theirs, expected, atol=1e-5, rtol=0)
    found = by_transformers(tmp_path / "saved", method.anchor.stages)
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)
    again.save_pretrained(tmp_path / "second")
    second = SentenceEncoder.from_pretrained(tmp_path / "second")
    assert np.array_equal(encode(second), expected)


def test_a_typed_prompt_token_is_plain_text(trained, encoder_folder):
    method = trained()
    plain = load_backbone(encoder_folder).tokenizer
    for sentence, row in zip(TYPED, method.backbone.tokenizer(TYPED, 50), strict=True):
        assert row.tolist() == plain([sentence], 50)[0].tolist(), sentence
    special = method.backbone.tokenizer.hf.encode("[PROMPT0]", add_special_tokens=False)
    assert special == [method.anchor.before[1]], "in a template it is the token"


@with_encoders("learned", ("bert", True), ("roberta", False))
def test_optiprompt_continues_with_tokens_of_its_own(trained, encoder_folder, tmp_path, learned):
    """Twice: the second time a [SPARE0] may be there as well as the prompts."""
    folder, changes, texts = encoder_folder, {}, set()
    for number in range(3):
        method = trained(folder=folder, **changes)
        table = method.encoder.get_input_embeddings()
        first = table.table.num_embeddings
        own = [t for t in token_ids(method.anchor) if t >= first]
        assert own == list(range(first, first + len(table.rows)))
        tokenizer = load_backbone(str(folder)).tokenizer.hf
        replaced = token_ids(BoundTemplate.bind(method.template("anchor"), tokenizer))
        moved = table.rows - table.table.weight[replaced]
        assert moved.abs().amax(dim=1).min() > 1e-3, "each of them is trained"
        folder, encoder = tmp_path / str(number), as_encoder(method)
        encoder.save_pretrained(folder)
        assert np.array_equal(encode(SentenceEncoder.from_pretrained(folder)), encode(encoder))
        texts.add(method.pooling.template.text)
        changes = {"templates.anchor": method.pooling.template.text} if learned else {}
    assert len(texts) == 3
