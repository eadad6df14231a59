"""DenoSent's losses against a slow reference: float64, a sentence at a time, transformers' own
MLM head, torch's own decoder."""

from __future__ import annotations

import copy

import pytest
import torch
from made_encoders import with_encoders
from torch.nn.functional import normalize
from transformers import AutoModelForMaskedLM

from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.pretrained import no_loading_report
from cotbert_core.methods import build_method, contrastive
from cotbert_core.training.batches import Batch
from cotbert_core.training.step import make_optimizer, train_step
from tests.core.slow_reference import assert_same_step, gradients

fresh = pytest.mark.parametrize("folder", ["fresh"], indirect=True)
QUIET = {"method.dropout": 0.0, "method.decoder_dropout": 0.0}


@pytest.fixture(params=["fresh", "own"])
def folder(encoder_folder, with_mlm_head, tmp_path, request):
    """The tiny encoder without an MLM head, and with one whose weights are all its own."""
    if request.param == "fresh":
        return encoder_folder
    return with_mlm_head(encoder_folder, tmp_path, noise=0.1)


@pytest.fixture
def make(folder, denosent_settings):
    """A method without noise and dropout, its new weights wide enough to matter."""

    def build(**changes):
        settings = denosent_settings(folder, QUIET | changes)
        torch.manual_seed(1)
        method = build_method(load_backbone(folder, dropout=0.0), settings).train()
        new = [p for n, p in method.named_parameters() if n.startswith(("projection", "decoder"))]
        with torch.no_grad():
            for weight in new:
                weight.add_(0.3 * torch.randn_like(weight))
        return method

    return build


@pytest.fixture
def batch(ids):
    return Batch(ids, ids.take([2, 3, 4, 5, 0, 1]))


@pytest.fixture
def slow_of(folder, torch_decoder):
    return lambda method: Slow(method, folder, torch_decoder)


class Slow:
    """The parts of a method in float64, from other people's classes."""

    def __init__(self, method, folder, torch_decoder):
        self.anchor, self.readout, self.method = method.anchor, method.readout, method.method
        with no_loading_report():
            self.whole = AutoModelForMaskedLM.from_pretrained(
                folder, dtype=torch.float64, attn_implementation="eager"
            ).eval()
        self.body = self.whole.base_model
        self.head = getattr(self.whole, "lm_head", None) or self.whole.cls
        if method.generates:
            self.decoder = torch_decoder(copy.deepcopy(method.decoder).double())
            if method.vocabulary.fresh:
                self._copy_head(method.vocabulary)
        if hasattr(method, "projection"):
            self.projection = copy.deepcopy(method.projection).double()

    def _copy_head(self, ours):
        part = self.head.predictions.transform if hasattr(self.head, "predictions") else self.head
        norm = part.LayerNorm if hasattr(part, "LayerNorm") else part.layer_norm
        norm.load_state_dict(ours.norm.state_dict())
        part.dense.load_state_dict(ours.dense.state_dict())
        getattr(self.head, "predictions", self.head).decoder.bias.data.zero_()

    def row(self, sentence):
        return [*self.anchor.before, *sentence.tolist(), *self.anchor.after]

    def vectors(self, texts, projected=True):
        """(N, D) as the decoder's memory, or before the projection."""
        found = []
        for sentence in texts:
            row = self.row(sentence)
            hidden = self.body(input_ids=torch.tensor([row])).last_hidden_state[0]
            if self.readout == "mask":
                last = max(j for j, token in enumerate(row) if token == self.anchor.mask_id)
                found.append(hidden[last])
            else:
                found.append(hidden[0] if self.readout == "cls" else hidden.mean(dim=0))
        raw = torch.stack(found)
        return self.projection(raw) if projected else raw

    def generative(self, texts, targets, detached=True):
        """Mean over all tokens of all wrapped targets."""
        losses = []
        for memory, target in zip(self.vectors(texts), targets, strict=True):
            row = self.row(target)
            embedded = self.body.embeddings(input_ids=torch.tensor([row]))
            embedded = embedded.detach() if detached else embedded
            scores = self.head(self.decoder(embedded, memory[None, None]))[0]
            losses += [s.logsumexp(dim=0) - s[t] for s, t in zip(scores, row, strict=True)]
        return torch.stack(losses).mean()

    def contrastive(self, texts, others):
        left, right = (
            normalize(self.vectors(t, self.method.projected), dim=-1) for t in (texts, others)
        )
        scores = left @ right.T / self.method.temperature
        return (scores.logsumexp(dim=1) - scores.diagonal()).mean()


@with_encoders("budget", ("bert", 40), ("roberta", 4096))
def test_generative_loss_and_gradients_equal_a_sentence_at_a_time(
    make, batch, slow_of, monkeypatch, budget, request
):
    monkeypatch.setattr(contrastive, "CPU_TRAIN_TOKENS", budget)
    method = make(**{"method.objective": "generative", "method.generative_weight": 1.0})
    assert method.vocabulary.fresh == ("fresh" in request.node.name)
    slow = slow_of(method)
    output = method(batch)
    expected = slow.generative(batch.sentences, batch.augmented)
    assert expected.item() > 2, "premise: it is not known by heart"
    assert_same_step(output, expected, (method.encoder, slow.body))
    pairs = {
        "projection": (method.projection.weight.grad, slow.projection.weight.grad),
        "queries": (
            method.decoder.layers[0].attention.inward.weight.grad,
            slow.decoder.layers[0].self_attn.in_proj_weight.grad,
        ),
        "vocabulary": (
            method.vocabulary.decoder.bias.grad,
            getattr(slow.head, "predictions", slow.head).decoder.bias.grad,
        ),
    }
    for name, (ours, theirs) in pairs.items():
        torch.testing.assert_close(ours.double(), theirs, atol=1e-6, rtol=1e-3, msg=name)
        assert theirs.abs().max() > 1e-3, name


@fresh
def test_the_encoder_is_reached_through_the_memory_alone(make, batch, slow_of):
    method = make(**{"method.objective": "generative", "method.generative_weight": 1.0})
    slow = slow_of(method)
    method(batch).loss.backward()
    slow.generative(batch.sentences, batch.augmented, detached=False).backward()
    name = "embeddings.position_embeddings.weight"
    difference = gradients(method.encoder)[name] - gradients(slow.body)[name]
    assert difference.abs().max() > 1e-4, "a reference that is not detached has more"
    method.zero_grad()
    words = method.vocabulary.decoder.weight
    assert words is method.encoder.embeddings.word_embeddings.weight, "tied: reached by the head"
    memory = torch.zeros(len(batch), 32)
    method.denoise(batch.sentences, memory).backward()
    reached = {n for n, g in gradients(method.encoder).items() if g.abs().max() > 0}
    assert reached == {"embeddings.word_embeddings.weight"}


@fresh
def test_target_is_the_companion_or_the_sentence_itself(make, batch, slow_of):
    texts, others = batch.sentences, batch.augmented
    seen = {}
    for target in ("augmented", "original"):
        method = make(**{"method.target": target})
        slow = slow_of(method)
        seen[target] = method(batch).parts["generative"].item()
        alone = method(Batch(texts)).parts["generative"].item()
        itself = slow.generative(texts, texts).item()
        wanted = slow.generative(texts, others).item() if target == "augmented" else itself
        assert seen[target] == pytest.approx(wanted, rel=1e-5)
        assert alone == pytest.approx(itself, rel=1e-5), "without x+ it is x"
    assert abs(seen["augmented"] - seen["original"]) > 1e-3


@fresh
@with_encoders(
    "readout projected",
    ("bert", "mask", True),
    ("bert", "cls", False),
    ("roberta", "mean", True),
    ("roberta", "mask", False),
)
def test_contrastive_loss_of_each_readout(make, batch, slow_of, readout, projected):
    changes = {"templates.anchor": "denosent" if readout == "mask" else None}
    method = make(**{"method.readout": readout, "method.projected": projected, **changes})
    slow = slow_of(method)
    parts = method(batch).parts
    expected = slow.contrastive(batch.sentences, batch.augmented).item()
    assert parts["contrastive"].item() == pytest.approx(expected, abs=1e-5)
    vectors = [slow.vectors(t, projected) for t in (batch.sentences, batch.augmented)]
    cosine = torch.cosine_similarity(*vectors).mean().item()
    assert parts["positive_cosine"].item() == pytest.approx(cosine, abs=1e-5)
    rebuilt = slow.generative(batch.sentences, batch.augmented).item()
    assert parts["generative"].item() == pytest.approx(rebuilt, rel=1e-5), "always projected"
    slow.method = method.method.model_copy(update={"projected": not projected})
    other = slow.contrastive(batch.sentences, batch.augmented).item()
    assert abs(other - expected) > 1e-3, "the projection matters"
    pooling = method.pooling
    assert (pooling.readout, pooling.full_stop) == (readout, True)
    assert (pooling.template is None) == (readout != "mask")


@fresh
def test_loss_is_the_weighted_sum_of_the_parts_of_its_objective(make, batch):
    weights = {"method.contrastive_weight": 2.0, "method.generative_weight": 3.0}
    both = make(**weights)(batch)
    assert set(both.parts) == {"contrastive", "generative", "positive_cosine"}
    assert not any(part.requires_grad for part in both.parts.values())
    contrasted, rebuilt = both.parts["contrastive"].item(), both.parts["generative"].item()
    assert both.loss.item() == pytest.approx(2 * contrasted + 3 * rebuilt, rel=1e-6)
    alone = make(**weights, **{"method.objective": "contrastive"})
    assert not hasattr(alone, "decoder")
    assert not hasattr(alone, "vocabulary")
    output = alone(batch)
    assert set(output.parts) == {"contrastive", "positive_cosine"}
    assert output.loss.item() == pytest.approx(2 * output.parts["contrastive"].item())
    generative = make(**weights, **{"method.objective": "generative"})(batch)
    assert set(generative.parts) == {"generative"}
    assert generative.loss.item() == pytest.approx(3 * rebuilt, rel=1e-6)
    raw = make(**{"method.objective": "contrastive", "method.projected": False})
    assert not hasattr(raw, "projection")


def test_a_new_vocabulary_head_is_noted(make, folder, encoder_folder):
    def noted(method):
        return any("uses a new one, tied to the encoder's word" in n for n in method.notes(()))

    assert noted(make()) == (folder == encoder_folder)
    assert not noted(make(**{"method.objective": "contrastive"}))


def read_by_decoder(method, batch):
    """The attended noisy embeddings (T, D) that the decoder is given."""
    seen = []
    hook = method.decoder.register_forward_pre_hook(lambda _, given: seen.append(given))
    method(batch)
    hook.remove()
    (noisy, attended, _) = seen[0]
    assert len(seen) == 1
    assert not noisy.requires_grad
    return noisy[attended]


@fresh
@pytest.mark.parametrize("dropout", [0.0, 0.5, 0.825])
def test_noise_zeroes_its_share_of_the_embeddings_and_scales_the_rest(make, batch, dropout):
    method = make(**{"method.dropout": dropout})
    whole = read_by_decoder(method.eval(), batch)
    draws = torch.stack([read_by_decoder(method.train(), batch) for _ in range(8)])
    assert whole.count_nonzero() == whole.numel() > 2000, "nothing is dropped in eval mode"
    zero = draws == 0
    assert zero.float().mean().item() == pytest.approx(dropout, abs=0.015)
    expected = (whole / (1 - dropout)).expand_as(draws)
    # The rate is one of 65,536, and the scale goes by it.
    torch.testing.assert_close(draws[~zero], expected[~zero], rtol=5e-5, atol=1e-5)
    if dropout:
        assert (zero[0] != zero[1]).any(), "each step samples again"
        assert 0 < zero[0].float().mean(dim=1).min() < 1, "elements are dropped, not tokens"


@fresh
def test_the_encoders_dropout_acts_before_the_noise(folder, denosent_settings, batch):
    settings = denosent_settings(folder, {"method.dropout": 0.6})
    method = build_method(load_backbone(folder, dropout=0.25), settings).train()
    draws = torch.stack([read_by_decoder(method, batch) for _ in range(16)])
    kept = (draws != 0).float().mean().item()
    assert kept == pytest.approx(0.4 * 0.75, abs=0.01)


def test_the_generative_loss_falls_on_real_sentences(shared, denosent_settings):
    """all-MiniLM-L6-v2 and the decoder as released, on Wikipedia."""
    changes = {
        "method.layers": 16,
        "method.heads": 1,
        "method.feed_forward": 2048,
        "max_length": 16,
        "precision": "auto",
        "optimizer.learning_rate": 1e-4,
        "optimizer.schedule": "constant",
    }
    settings = denosent_settings("all-MiniLM-L6-v2", changes)
    lines = (shared / "data" / "corpus" / "wiki1m_prefix.txt").read_text(encoding="utf-8")
    torch.manual_seed(0)
    method = build_method(load_backbone(settings.encoder), settings).train()
    batch = Batch(method.backbone.tokenizer(lines.splitlines()[:8], settings.max_length))
    optimizer = make_optimizer(method, settings.optimizer)
    losses = [
        train_step(method, batch, optimizer, settings, step, 4).parts["generative"]
        for step in range(1, 5)
    ]
    assert losses[0] > 9, "premise: it begins near log(30,522) = 10.3"
    assert min(losses[2:]) < losses[0] - 1, losses
