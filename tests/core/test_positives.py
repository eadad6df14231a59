"""Each positive of each method: what is encoded, and which rows are no negatives of each other."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.method_table import ALONE, BARE
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.heads import apply_head
from cotbert_core.losses import extended_info_nce, info_nce, same_document
from cotbert_core.method_settings import METHOD_SETTINGS
from cotbert_core.methods import build_method
from cotbert_core.methods.contrastive import View
from cotbert_core.training.batches import Batch

ROLES = ("anchor", "positive", "negative")
TEMPLATES = {
    "cot-bert": {f"templates.{role}": f"cot-bert/{role}" for role in ROLES},
    "promptbert": {f"templates.{role}": f"promptbert/{role}" for role in ROLES[:2]},
    "denosent": {"templates.anchor": "denosent", "method.objective": "contrastive"},
    "simcse": {},
}
FROM_TEXTS = ("paired", "neighbour", "rest")
CASES = [
    (method, positive)
    for method in TEMPLATES
    for positive in ("dropout", "template", *FROM_TEXTS)
    if positive in METHOD_SETTINGS[method].positives
]
every_case = pytest.mark.parametrize(("method", "positive"), CASES)
DOCUMENTS = np.array([5, 2**62, 5, 7, 2**62, 8])


@pytest.fixture
def make(bert_folder, tiny_settings):
    def build(method, positive, **changes):
        torch.manual_seed(1)
        settings = settings_of(tiny_settings, bert_folder, method, positive, **changes)
        made = build_method(load_backbone(bert_folder, dropout=settings.dropout), settings)
        for layer in (getattr(made, "head", None), getattr(made, "projection", None)):
            if layer is not None:
                torch.nn.init.normal_(getattr(layer, "dense", layer).weight, std=0.3)
        return made

    return build


def settings_of(tiny_settings, folder, method, positive, **changes):
    given = {"method.name": method, **BARE, **TEMPLATES[method], "method.positive": positive}
    if positive == "dropout":
        given["templates.positive"] = None
    return tiny_settings(folder, {**given, **changes})


@pytest.fixture
def batch(bert_folder, sentences):
    ids = load_backbone(bert_folder).tokenizer(sentences, 8)
    return Batch(ids, ids.take([3, 5, 0, 1, 2, 4]), documents=DOCUMENTS)


def loss_of(made, batch, method, positive):
    """The loss, from the vectors of each text under the template that it should have."""
    other = batch.augmented if positive in FROM_TEXTS else batch.sentences
    second = "positive" if method in ("cot-bert", "promptbert") and positive != "dropout" else None
    anchor = "anchor" if method != "simcse" else None
    views = [(anchor, batch.sentences), (second or anchor, other)]
    if method == "cot-bert":
        views.append(("negative", batch.sentences))
    encoded = [made.encode([View(made.bind(role), texts)])[0] for role, texts in views]
    if method == "denosent":
        vectors = [made.projection(vector) for vector, _ in encoded]
    else:
        vectors = [apply_head(vector, bias, made.head) for vector, bias in encoded]
    documents = torch.from_numpy(batch.documents)
    exclude = same_document(documents, documents)
    loss = extended_info_nce if method == "cot-bert" else info_nce
    weight = 5.0 if method == "denosent" else 1.0
    return weight * loss(*vectors, temperature=made.temperature, exclude=exclude)


@every_case
def test_the_loss_is_that_of_the_positives_texts_and_templates(make, batch, method, positive):
    made = make(method, positive)
    found = made(batch).loss.item()
    assert found == pytest.approx(loss_of(made, batch, method, positive).item(), abs=1e-4)
    if positive in FROM_TEXTS:
        itself = Batch(batch.sentences, batch.sentences, documents=DOCUMENTS)
        assert abs(made(itself).loss.item() - found) > 1e-2, "the positive's text counts"
    else:
        alone = Batch(batch.sentences, documents=DOCUMENTS)
        assert made(alone).loss.item() == found, "the paired text does not"
    everything = made(Batch(batch.sentences, batch.augmented)).loss.item()
    assert everything - found > 1e-3, "rows of one document are false negatives"


def test_denosent_rebuilds_the_rest_of_the_document(make, batch):
    small = {"method.objective": "generative", "method.layers": 1, "method.dropout": 0.0}
    small |= {"method.decoder_dropout": 0.0, "method.feed_forward": 8}
    rest, itself = make("denosent", "rest", **small), make("denosent", "dropout", **small)
    target = Batch(batch.augmented, documents=DOCUMENTS)
    assert rest(batch).loss.item() != itself(batch).loss.item()
    seen = []
    rest.denoise = lambda texts, memory: seen.append(texts) or memory.sum()
    itself.denoise = rest.denoise
    rest(batch), itself(batch)
    assert seen == [target.sentences, batch.sentences]


@pytest.mark.parametrize("method", ["simcse", "promptbert", "arccse", "dclr", "rankcse"])
def test_equal_views_are_noted(tiny_settings, bert_folder, method):
    """Dropout alone makes the views differ; an encoder or the settings may have none."""
    folder = str(bert_folder)
    positive = {"method.positive": "dropout"} if method in ("simcse", "promptbert") else {}
    teacher = {"method.teacher": folder} if method == "rankcse" else {}
    roles = ALONE if method == "promptbert" else BARE
    given = {"method.name": method, **positive, **teacher, **roles}

    def notes(dropout, own=0.1):
        settings = tiny_settings(folder, given | {"dropout": dropout})
        backbone = load_backbone(folder, dropout=own)
        return [n for n in build_method(backbone, settings).notes(()) if "without dropout" in n]

    assert notes(0.1) == notes(None) == notes(0.1, own=0.0) == []
    assert notes(0.0)[0].startswith("dropout is 0.0: without dropout the two views of a sentence")
    assert "has none" in notes(None, own=0.0)[0]


def test_denosent_without_augmented_texts_says_that_it_uses_dropout(make, batch):
    fallback, chosen = make("denosent", "paired"), make("denosent", "dropout")
    for made, noted in ((fallback, True), (chosen, False)):
        assert any("positives differ only in dropout" in n for n in made.notes(())) == noted
    alone = Batch(batch.sentences)
    assert fallback(alone).loss.equal(chosen(alone).loss)
    for columns, noted in (((), True), (("augmented",), False)):
        assert any("the two views of a sentence" in n for n in fallback.notes(columns)) == noted
    for positive in ("paired", "dropout"):  # of which the generative loss has none
        notes = make("denosent", positive, **{"method.objective": "generative"}).notes(())
        assert not any("two views" in n or "positives differ" in n for n in notes)
