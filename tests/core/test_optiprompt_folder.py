"""OptiPrompt's folders: read the same everywhere, typed prompt tokens are text, trainable on."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cotbert_core import SentenceEncoder
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.methods import build_method
from cotbert_core.saving.model_folder import READOUT_TOKEN
from cotbert_core.templates.wrapping import BoundTemplate
from cotbert_core.training.batches import Batch
from cotbert_core.training.step import make_optimizer, train_step

NONE = {"templates.positive": None, "templates.negative": None}
TYPED = [
    "A man is playing the guitar",
    "[PROMPT0] typed",
    "[PROMPT0][PROMPT1] [MASK] <mask>",
    "[PROMPT0]",
    "[SPARE0] [READOUT] .",
    "oil.",
    "",
]
STAGES = "This sentence : ' [X] ' means [MASK] , so it is [MASK] ."


@pytest.fixture
def settings_of(tiny_settings, family):
    manual = "promptroberta/anchor" if family == "cot-roberta" else "promptbert/manual"

    def make(folder, **changes):
        flat = {"method.name": "optiprompt", **NONE, "templates.anchor": manual, **changes}
        return tiny_settings(str(folder), flat)

    return make


@pytest.fixture
def trained(settings_of, sentences):
    """A method after a few steps, from any folder."""

    def make(folder, **changes):
        settings = settings_of(folder, **{"optimizer.learning_rate": 0.05, **changes})
        torch.manual_seed(1)
        method = build_method(load_backbone(str(folder), dropout=0.1), settings).train()
        optimizer = make_optimizer(method, settings.optimizer)
        ids = method.backbone.tokenizer(sentences, 8)
        for step in (1, 2, 3):
            train_step(method, Batch(ids), optimizer, settings, step, 4)
        return method.eval()

    return make


def save(method, folder):
    encoder = SentenceEncoder(method.finished, method.pooling, method.kept_head)
    encoder.save_pretrained(folder)
    return encoder


def encode(encoder, sentences=TYPED):
    return encoder.encode(sentences, precision="fp32")


def by_transformers(folder, stages):
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder).eval()
    inputs = tokenizer(TYPED, padding=True, return_tensors="pt")
    token = tokenizer.mask_token if stages == 1 else READOUT_TOKEN
    read = inputs["input_ids"] == tokenizer.convert_tokens_to_ids(token)
    with torch.no_grad():
        return model(**inputs).last_hidden_state[read].numpy()


@pytest.mark.parametrize("text", [None, STAGES], ids=["one mask", "two masks"])
def test_a_folder_is_read_the_same_everywhere(trained, encoder_folder, tmp_path, text):
    from sentence_transformers import SentenceTransformer

    method = trained(encoder_folder, **({"templates.anchor": text} if text else {}))
    encoder = save(method, tmp_path / "saved")
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
    method = trained(encoder_folder)
    plain = load_backbone(encoder_folder).tokenizer
    for sentence, row in zip(TYPED, method.backbone.tokenizer(TYPED, 50), strict=True):
        assert row.tolist() == plain([sentence], 50)[0].tolist(), sentence
    special = method.backbone.tokenizer.hf.encode("[PROMPT0]", add_special_tokens=False)
    assert special == [method.anchor.before[1]], "in a template it is the token"


@pytest.mark.parametrize("name", ["cot-bert", "simcse"])
def test_another_method_continues_from_the_folder(
    trained, settings_of, encoder_folder, family, sentences, tmp_path, name
):
    save(trained(encoder_folder), tmp_path / "first")
    roles = ("anchor", "positive", "negative")
    templates = {f"templates.{r}": f"{family}/{r}" if name == "cot-bert" else None for r in roles}
    method = trained(tmp_path / "first", **{"method.name": name, **templates})
    assert (
        method.finished.model.config.vocab_size
        == load_backbone(str(tmp_path / "first")).model.get_input_embeddings().num_embeddings
    )
    encoder = save(method, tmp_path / "second")
    before = SentenceEncoder.from_pretrained(
        tmp_path / "first", encoder.pooling.template, encoder.pooling.readout
    )
    assert np.abs(encode(before, sentences) - encode(encoder, sentences)).max() > 0.01
    again = SentenceEncoder.from_pretrained(tmp_path / "second")
    assert np.array_equal(encode(again), encode(encoder))


@pytest.mark.parametrize("text", [None, STAGES], ids=["one mask", "two masks"])
def test_optiprompt_continues_with_tokens_of_its_own(trained, encoder_folder, tmp_path, text):
    """Twice: the second time a [SPARE0] may be there as well as the prompts."""
    changes = {"templates.anchor": text} if text else {}
    folder, seen = encoder_folder, set()
    for number in range(3):
        method = trained(folder, **changes)
        table = method.encoder.get_input_embeddings()
        first = table.table.num_embeddings
        own = [t for t in method.anchor.before + method.anchor.after if t >= first]
        assert own == list(range(first, first + len(table.rows)))
        assert not seen & {method.pooling.template.text}
        seen.add(method.pooling.template.text)
        moved = table.rows - table.table.weight[_replaced(method)]
        assert moved.abs().amax(dim=1).min() > 1e-3, "each of them is trained"
        folder = tmp_path / str(number)
        expected = encode(save(method, folder))
        assert np.array_equal(encode(SentenceEncoder.from_pretrained(folder)), expected)


def test_the_learned_template_can_be_trained_further(trained, encoder_folder, tmp_path):
    first = trained(encoder_folder)
    save(first, tmp_path / "first")
    learned = first.pooling.template.text
    again = trained(tmp_path / "first", **{"templates.anchor": learned})
    rows = again.encoder.get_input_embeddings()
    assert _replaced(again) == [
        t for t in first.anchor.before[1:] + first.anchor.after[:-1] if t != first.anchor.mask_id
    ]
    assert (rows.rows - rows.table.weight[_replaced(again)]).abs().max() > 1e-3


def _replaced(method):
    """The ids that the method's tokens began as."""
    plain = load_backbone(method.settings.encoder).tokenizer.hf
    bound = BoundTemplate.bind(method.template("anchor"), plain)
    return [t for t in bound.before[1:] + bound.after[:-1] if t != bound.mask_id]
