"""Recipes that promise the released code, against its rules written out slowly: a text at a time,
the template filled in as text, transformers' own tokenizer and model."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from cotbert_core import SentenceEncoder
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.locations import MINILM, locate_encoder
from cotbert_core.encoder.template_denoising import bias_rows
from cotbert_core.evaluation.pairs import cosines
from cotbert_core.methods import build_method
from cotbert_core.methods.contrastive import View
from cotbert_core.settings import override
from cotbert_core.templates.template_texts import TEMPLATES
from cotbert_core.templates.wrapping import BoundTemplate
from cotbert_core.training.batches import Batch
from cotbert_core.training.step import make_optimizer, train_step
from pipelines.recipes import RECIPES

CLAUSES = (
    "the old ferry crosses the bay twice a day",
    "nobody told the new tenants about the leaking roof",
    "a young violinist practises scales before breakfast",
    "he can't remember where he left his grandmother's keys",
)
SENTENCES = [
    "",
    *CLAUSES,
    *(f"{clause}." for clause in CLAUSES),
    *(f"{clause}?" for clause in CLAUSES[:2]),
    *(f"{clause}!" for clause in CLAUSES[2:]),
    *(f"'{clause}'" for clause in CLAUSES[:2]),
    *(f"{clause}, and {CLAUSES[n]} while {CLAUSES[n - 3]}" for n, clause in enumerate(CLAUSES)),
    'She asked: "why?"',
    "rain",
    f"{', '.join(CLAUSES)}.",
]
ENOUGH = 0.99999


def encode(encoder):
    return encoder.encode(SENTENCES, precision="fp32")


def method_of(recipe, folder, **changes):
    """An untrained method of a recipe, on an encoder of our choice."""
    settings = override(RECIPES[recipe](), {"encoder": str(folder), **changes})
    torch.manual_seed(0)
    return build_method(load_backbone(settings.encoder, dropout=settings.dropout), settings)


def mask_vectors(folder, rows):
    """The last layer at the mask of each row, a row at a time."""
    model = AutoModel.from_pretrained(folder, dtype=torch.float64).eval()
    mask = AutoTokenizer.from_pretrained(folder).mask_token_id
    found = []
    with torch.no_grad():
        for ids in rows:
            hidden = model(input_ids=torch.tensor([ids])).last_hidden_state[0]
            found.append(hidden[ids.index(mask)].numpy())
    return np.stack(found)


@functools.cache
def released_denosent(folder):
    """32 tokens with [CLS] and [SEP], decoded, put into the template as text, tokenized again."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows = []
    for sentence in SENTENCES:
        cut = tokenizer(sentence, truncation=True, max_length=32)["input_ids"]
        text = f'"{tokenizer.decode(cut, skip_special_tokens=True)}" means {tokenizer.mask_token}.'
        rows.append(tokenizer(text, truncation=True, max_length=32 + 8)["input_ids"])
    return mask_vectors(folder, rows)


def released_promptroberta(folder):
    """A full stop where the text has no ending of its own, then the template as text, stripped."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows = []
    for sentence in SENTENCES:
        ended = sentence + "." if sentence and sentence[-1] not in ".?\"'" else sentence
        text = f"This sentence : ' {ended} ' means{tokenizer.mask_token}.".strip()
        rows.append(tokenizer(text)["input_ids"])
    return mask_vectors(folder, rows)


# Nothing here is read through the decoder.
NO_DECODER = {"method.objective": "contrastive"}


@pytest.mark.real
def test_denosent_encodes_as_released_in_every_library(tmp_path):
    from sentence_transformers import SentenceTransformer

    expected = released_denosent(locate_encoder(MINILM))
    method = method_of("denosent-base", MINILM, **NO_DECODER)
    assert cosines(encode(method.sentence_encoder), expected).min() >= ENOUGH
    assert cosines(encode(method.dev_encoder), expected).min() >= ENOUGH
    method.sentence_encoder.save_pretrained(tmp_path / "model")
    again = SentenceEncoder.from_pretrained(tmp_path / "model")
    assert (again.max_length, again.pooling.full_stop) == (30, False)
    assert cosines(encode(again), expected).min() >= ENOUGH
    other = SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(SENTENCES)
    assert cosines(other, expected).min() >= ENOUGH
    # By other rules: 32 tokens; a full stop and no cut at inference.
    for changes, different in (({"max_length": 32}, 3), ({"method.inference": "whole"}, 8)):
        method = method_of("denosent-base", MINILM, **NO_DECODER, **changes)
        found = cosines(encode(method.sentence_encoder), expected)
        assert (found < ENOUGH).sum() >= different
        assert found.min() < 0.97


def test_denosent_reads_whole_sentences_in_other_recipes(bert_folder):
    from cotbert_core.method_settings.papers import DenoSentSettings

    assert DenoSentSettings().inference == "whole"
    for readout, template, limit in (("mask", "denosent", None), ("mean", None, None)):
        changes = {"method.readout": readout, "templates.anchor": template, **NO_DECODER}
        method = method_of("denosent-base", bert_folder, **changes, **{"method.inference": "whole"})
        assert (method.pooling.full_stop, method.pooling.max_length) == (True, limit)
        method = method_of("denosent-base", bert_folder, **changes)
        assert (method.pooling.full_stop, method.pooling.max_length) == (False, 30)


def test_promptroberta_encodes_as_released(roberta_folder):
    expected = released_promptroberta(roberta_folder)
    blank = {"method.empty_sentence": "blank"}
    method = method_of("promptroberta-base", roberta_folder, **blank)
    assert cosines(encode(method.sentence_encoder), expected).min() >= ENOUGH
    # By default no other library would find the empty sentence's vector: that one alone differs.
    found = cosines(
        encode(method_of("promptroberta-base", roberta_folder).sentence_encoder), expected
    )
    assert found[1:].min() >= ENOUGH
    assert found[0] < 0.999
    # In the paper's words, with other blanks.
    roles = {f"templates.{r}": f"promptroberta/{r}" for r in ("anchor", "positive")}
    method = method_of("promptroberta-base", roberta_folder, **roles)
    found = cosines(encode(method.sentence_encoder), expected)
    assert (found < ENOUGH).sum() >= 15
    assert found.min() < 0.9


def test_a_blank_for_the_empty_sentence_is_refused_by_other_libraries(
    roberta_folder, bert_folder, tmp_path
):
    from sentence_transformers import SentenceTransformer

    blank = {"method.empty_sentence": "blank"}
    method = method_of("promptroberta-base", roberta_folder, **blank)
    with pytest.warns(UserWarning, match="because an empty text gets a blank"):
        method.sentence_encoder.save_pretrained(tmp_path / "model")
    again = SentenceEncoder.from_pretrained(tmp_path / "model")
    assert np.array_equal(encode(again), encode(method.sentence_encoder))
    with pytest.raises(ImportError, match="only_cotbert_core"):
        SentenceTransformer(str(tmp_path / "model"), device="cpu")
    bert = method_of("promptbert-base", bert_folder, **blank)
    assert bert.pooling.empty_blank
    assert bert.sentence_encoder.saved().is_portable, "WordPiece has no such blank"


@pytest.mark.parametrize("recipe", ["promptroberta-base", "promptroberta-supervised"])
def test_promptrobertas_bias_rows_count_positions_from_0(roberta_folder, recipe):
    method = method_of(recipe, roberta_folder)
    bound = BoundTemplate.bind(method.template("anchor"), method.backbone.tokenizer.hf)
    settings, first = method.settings.method, len(bound.before)
    rows, _ = bias_rows(
        method.backbone, bound, np.array([0, 5]), settings.denoise, settings.pad_positions
    )
    ids = rows.positions + method.backbone.position_start
    width = bound.length
    assert ids.tolist() == [
        list(range(width)),
        [*range(first), *(n + 5 for n in range(first, width))],
    ]
    aligned, _ = bias_rows(method.backbone, bound, np.array([0, 5]), "position", "aligned")
    assert (aligned.positions - rows.positions).unique().tolist() == [2]


@pytest.mark.parametrize("role", ["anchor", "positive", "negative"])
def test_cot_robertas_training_templates_end_in_a_blank_token(roberta_folder, bert_folder, role):
    method = method_of("cot-roberta-base", roberta_folder)
    tokenizer = method.backbone.tokenizer.hf
    trained = BoundTemplate.bind(method.template(role), tokenizer)
    plain = BoundTemplate.bind(TEMPLATES[f"cot-roberta/{role}"], tokenizer)
    assert trained.after[-2:] == (tokenizer.convert_tokens_to_ids("\u0120"), plain.after[-1])
    assert (*trained.after[:-2], trained.after[-1]) == plain.after
    assert trained.before == plain.before
    assert method.pooling.template == TEMPLATES["cot-roberta/anchor"]
    assert method.sentence_encoder.bound.after != trained.after
    bert = load_backbone(bert_folder).tokenizer.hf
    first, second = (
        BoundTemplate.bind(t, bert)
        for t in (method.template(role), TEMPLATES[f"cot-roberta/{role}"])
    )
    assert first == second, "WordPiece ignores blanks"


@pytest.mark.parametrize("recipe", ["promptbert-base", "cot-bert-base", "optiprompt-base"])
def test_a_dev_check_as_released_adds_no_full_stop_and_denoises_promptbert(bert_folder, recipe):
    method = method_of(recipe, bert_folder)
    assert method.dev_pooling == method.pooling
    assert method.pooling.full_stop
    released = method_of(recipe, bert_folder, **{"method.dev_reading": "released"})
    denoise = "position" if recipe == "promptbert-base" else "none"
    assert (released.dev_pooling.full_stop, released.dev_pooling.denoise) == (False, denoise)
    assert (released.pooling.full_stop, released.pooling.denoise) == (True, "none")
    if recipe == "promptbert-base":
        by_hand = SentenceEncoder.from_pretrained(
            bert_folder, "promptbert/anchor", denoise="position"
        )
        ended = [s for s in SENTENCES if s[-1:] in ".?\"'"]
        found = released.dev_encoder.encode(ended, precision="fp32")
        assert np.array_equal(found, by_hand.encode(ended, precision="fp32"))
        assert not np.array_equal(encode(released.dev_encoder), encode(by_hand)), "the full stop"


@pytest.mark.parametrize("recipe", ["cot-bert-base", "promptbert-base"])
def test_an_empty_row_without_dropout_has_a_sensible_gradient(bert_folder, recipe):
    changes = {"dropout": 0.0, "precision": "fp32", "batch_size": 4}
    norms = {}
    for texts in (["", "rain", "two dogs", "a man"], ["a word", "rain", "two dogs", "a man"]):
        method = method_of(recipe, bert_folder, **changes).train()
        ids = method.backbone.tokenizer(texts, 8)
        optimizer = make_optimizer(method, method.settings.optimizer)
        step = train_step(method, Batch(ids), optimizer, method.settings, 1, 4)
        norms[texts[0]] = step.gradient_norm
    assert 0 < norms[""] < 10 * norms["a word"], "1e12 where its length divides"


# Words and signs of the template in the sentence, and none.
TYPED = [
    "two dogs run",
    "this sentence : what is it",
    "this man saw this child",
    'she said "this means it" .',
    "",
    "a sentence of one word : ice",
]


def released_optiprompt(model, tokenizer, template, trained):
    """A row at a time: each template token's embedding goes where that token occurs last."""
    rows = []
    for sentence in TYPED:
        ended = sentence + "." if sentence and sentence[-1] not in ".?\"'" else sentence
        text = template.text.replace("[X]", ended).replace("[MASK]", tokenizer.mask_token)
        ids = tokenizer(text)["input_ids"]
        empty = template.text.replace("[X]", " ").replace("[MASK]", tokenizer.mask_token)
        embedded = model.get_input_embeddings()(torch.tensor([ids])).clone()
        own = [t for t in tokenizer(empty)["input_ids"][1:-1] if t != tokenizer.mask_token_id]
        for vector, token in zip(trained, own, strict=True):
            embedded[0, max(n for n, other in enumerate(ids) if other == token)] = vector
        hidden = model(inputs_embeds=embedded).last_hidden_state[0]
        rows.append(hidden[ids.index(tokenizer.mask_token_id)])
    return torch.stack(rows)


def test_optiprompt_replaces_the_last_occurrences_as_released(bert_folder, tmp_path):
    from sentence_transformers import SentenceTransformer

    def trained(replaced):
        changes = {"method.replaced": replaced, "precision": "fp32", "dropout": 0.0}
        method = method_of("optiprompt-base", bert_folder, **changes)
        rows = method.encoder.get_input_embeddings().rows
        with torch.no_grad():
            rows.add_(0.3 * torch.randn(rows.shape, generator=torch.Generator().manual_seed(2)))
        return method.eval()

    method = trained("last")
    model = AutoModel.from_pretrained(bert_folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(bert_folder)
    rows = method.encoder.get_input_embeddings().rows
    slow = rows.detach().clone().requires_grad_()
    exact = released_optiprompt(model, tokenizer, TEMPLATES["promptbert/manual"], slow)
    expected = exact.detach().numpy()
    found = method.sentence_encoder.encode(TYPED, precision="fp32")
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)
    with pytest.warns(UserWarning, match="because its trained tokens stand where a word"):
        SentenceEncoder(method.finished, method.pooling).save_pretrained(tmp_path / "model")
    again = SentenceEncoder.from_pretrained(tmp_path / "model")
    np.testing.assert_allclose(again.encode(TYPED, precision="fp32"), expected, atol=1e-5, rtol=0)
    with pytest.raises(ImportError, match="only_cotbert_core"):
        SentenceTransformer(str(tmp_path / "model"), device="cpu")
    other = trained("template").sentence_encoder.encode(TYPED, precision="fp32")
    assert (np.abs(other - expected).max(axis=1) > 1e-3).all(), "the first quote, in every row"
    (vectors, _), *_ = method.encode([View(method.anchor, method.sentence_encoder.tokenize(TYPED))])
    direction = torch.randn(exact.shape, generator=torch.Generator().manual_seed(3))
    (vectors * direction).sum().backward()
    (exact * direction).sum().backward()
    torch.testing.assert_close(rows.grad, slow.grad, atol=1e-4, rtol=1e-3)
    # This sentence : " [X] " means [MASK] . The first quote is never reached.
    assert [bool(row.any()) for row in rows.grad] == [True, True, True, False, True, True, True]
