"""Masked language modelling: the loss, its masks, packed rows, and what is saved."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from made_encoders import with_encoders
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from benchmarks.method_table import BARE
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.mlm import load_mlm_head
from cotbert_core.methods import build_method, mlm
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.settings import TrainSettings, override
from cotbert_core.training.batches import Batch
from cotbert_core.training.masking import Masking, word_continuations
from cotbert_core.training.packing import pack
from cotbert_core.training.step import make_optimizer, train_step
from tests.core.method_table import as_encoder, random_rows


@pytest.fixture
def make(encoder_folder):
    def build(**changes):
        few = {"method.name": "mlm", "batch_size": 6, "precision": "fp32", "dropout": 0.0}
        settings = override(TrainSettings(encoder=encoder_folder), BARE | few | changes)
        torch.manual_seed(1)
        return build_method(load_backbone(encoder_folder, dropout=settings.dropout), settings)

    return build


@pytest.fixture
def batch(encoder_folder, sentences):
    return Batch(load_backbone(encoder_folder).tokenizer(sentences, 20))


def slow_loss(method, rows, step):
    masked = method.masking(rows, method.settings.seed, step)
    return torch.nn.functional.cross_entropy(*slow_scores(method, rows, masked))


def slow_scores(method, rows, masked):
    """The scores and the tokens to predict, row by row, with the head over all positions, as in
    transformers' own loss."""
    scores, labels, start = [], [], 0
    for row, ids in zip(rows, masked.ids, strict=True):
        chosen = masked.chosen[start : start + len(row)]
        start += len(row)
        whole = [*method.bare.before, *ids, *method.bare.after]
        places = len(method.bare.before) + np.flatnonzero(chosen)
        labels.append(torch.from_numpy(row[chosen].astype(np.int64)))
        positions = torch.arange(len(whole))[None] + method.backbone.position_start
        hidden = method.encoder(
            input_ids=torch.tensor(whole)[None], position_ids=positions
        ).last_hidden_state[0]
        scores.append(method.vocabulary(hidden)[places])
    return torch.cat(scores), torch.cat(labels)


@with_encoders(
    "attention whole_word",
    ("bert", "auto", True),
    ("bert", "unpadded", False),
    ("roberta", "unpadded", True),
)
def test_the_loss_and_its_gradient_are_the_slow_reference_s(
    make, batch, monkeypatch, attention, whole_word
):
    monkeypatch.setattr(mlm, "train_budget", lambda _: (30, 0))  # several batches
    monkeypatch.setattr(mlm, "HEAD_TOKENS", 3)
    method = make(**{"attention": attention, "method.whole_word": whole_word})
    method.step = 3
    loss = method(batch).loss
    expected = slow_loss(method, batch.sentences, 3)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)
    trained = [p for p in method.parameters() if p.requires_grad]
    found, wanted = (torch.autograd.grad(one, trained) for one in (loss, expected))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
    assert abs((slow_loss(method, batch.sentences, 4) - loss).item()) > 1e-4, "another step"


def test_held_out_rows_are_scored_the_same_by_one_worker_and_two(make, batch, monkeypatch):
    method = make()
    alone = method.accuracy(batch.sentences)
    parts = []
    monkeypatch.setattr(mlm, "world_size", lambda: 2)
    monkeypatch.setattr(mlm, "sums", lambda values: parts.append(values) or values)
    for own in (0, 1):
        monkeypatch.setattr(mlm, "rank", lambda own=own: own)
        method.accuracy(batch.sentences)
    assert 100 * sum(p[0] for p in parts) / sum(p[1] for p in parts) == pytest.approx(alone)
    method.settings = override(method.settings, {"seed": 5})
    method.step = 9
    monkeypatch.undo()
    assert method.accuracy(batch.sentences) == alone, "masks are fixed"


def test_training_learns_to_predict_masked_tokens(make, batch):
    method = make(**{"optimizer.learning_rate": 1e-2, "optimizer.schedule": "constant"})
    before = method.accuracy(batch.sentences)
    optimizer = make_optimizer(method, method.settings.optimizer)
    for step in range(1, 31):
        method.train()
        method.step = step
        train_step(method, batch, optimizer, method.settings, step, 30)
    found = method.accuracy(batch.sentences)
    assert found > before + 20
    only = Masking(0.15, method.masking.mask_id, method.masking.tokens).only_masks
    scores, wanted = slow_scores(method.eval(), batch.sentences, only(batch.sentences, 0))
    right = scores.argmax(dim=1) == wanted
    assert found == pytest.approx(100 * right.double().mean().item())
    for module in method.train().modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.9
    assert method.accuracy(batch.sentences) == found, "without dropout"


def test_the_chosen_tokens_are_corrupted_as_berts():
    rows, masking = random_rows([100] * 400), Masking(0.15, mask_id=4, tokens=1000)
    masked = masking(rows, 0, 1)
    chosen = masked.chosen.reshape(400, 100)
    assert (chosen.sum(axis=1) == 15).all()
    assert (masked.ids.flat == rows.flat)[~masked.chosen].all()
    assert chosen.mean(axis=0).std() < 0.03, "no place is favoured"
    put = masked.ids.flat[masked.chosen]
    kept = put == rows.flat[masked.chosen]
    assert (put == 4).mean() == pytest.approx(0.8, abs=0.02)
    assert kept.mean() == pytest.approx(0.1, abs=0.02)
    others = put[(put != 4) & ~kept]
    assert others.std() == pytest.approx(1000 / np.sqrt(12), rel=0.05)
    only = masking.only_masks(rows, 0)
    assert (only.ids.flat[only.chosen] == 4).all()


def test_whole_words_are_chosen_together():
    """Against a loop over words: words in the order of their number until the share is reached."""
    random = np.random.default_rng(3)
    continues = random.random(1000) < 0.5
    rows = random_rows([60, 9, 30, 1], seed=4)
    masked = Masking(0.3, 4, 1000, continues)(rows, 0, 2)
    for row, chosen in zip(rows, np.split(masked.chosen, rows.offsets[1:-1]), strict=True):
        words: list[list[int]] = []
        for place, token in enumerate(row):
            if place and continues[token]:
                words[-1].append(place)
            else:
                words.append([place])
        for word in words:
            assert len({bool(chosen[place]) for place in word}) == 1
        wanted = max(1, round(0.3 * len(row)))
        longest = max(map(len, words))
        assert wanted <= chosen.sum() < wanted + longest
    single = Masking(0.3, 4, 1000)(rows, 0, 2).chosen
    assert (single != masked.chosen).any()
    counts = [row.sum() for row in np.split(single, rows.offsets[1:-1])]
    assert counts == [18, 3, 9, 1], "single tokens: their share, and at least one"


def test_continuations_are_known_for_both_kinds_of_tokenizer(bert_folder, roberta_folder):
    for folder, text in (
        (bert_folder, "penguin plays zzz"),
        (roberta_folder, " penguin plays zzz"),
    ):
        plain = load_backbone(folder).tokenizer.hf
        ids = plain.encode(text, add_special_tokens=False)
        continues = word_continuations(plain, len(plain))[ids]
        assert (~continues).sum() == 3
        assert continues.any(), "premise: a word has several tokens"
        assert not word_continuations(plain, len(plain))[plain.all_special_ids].any()


def test_continuations_of_sentencepiece_are_tokens_without_a_blank_before_them():
    tokens = ["<pad>", "\u2581the", "\u2581dog", "s"]
    backend = Tokenizer(models.Unigram([(token, -1.0) for token in tokens], unk_id=0))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    plain = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>")
    assert word_continuations(plain, 4).tolist() == [False, False, False, True]


@pytest.mark.parametrize("documents", [None, [0, 0, 4, 7, 7, 7, 7, 3, 5, 5]])
def test_packing_is_the_slow_loop_s(documents):
    lengths = [5, 5, 1, 3, 0, 12, 2, 9, 1, 6]
    sentences = random_rows(lengths)
    held = None if documents is None else np.array(documents)
    expected: list[list[int]] = []
    last = None
    for number, ids in enumerate(sentences):
        ids, own = list(ids[:10]), documents and documents[number]
        if not expected or len(expected[-1]) + len(ids) > 10 or (last is not None and own != last):
            expected.append([])
        expected[-1] += ids
        last = own
    rows = pack(sentences, 10, held)
    assert [list(row) for row in rows] == [row for row in expected if row]
    assert rows.lengths.max() == 10
    assert rows.lengths.min() > 0
    assert len(rows) == (6 if documents is None else 7)


def test_the_saved_model_has_its_head(make, batch, tmp_path):
    from transformers import AutoModelForMaskedLM

    method = make()
    with torch.no_grad():
        method.vocabulary.dense.weight += 0.1
        method.vocabulary.decoder.bias += 0.3
    encoder = as_encoder(method)
    encoder.save_pretrained(tmp_path / "model")
    rows = method.bare.wrap(batch.sentences.take([3]))
    names = load_file(tmp_path / "model" / "model.safetensors")
    assert not any(name.endswith("decoder.weight") for name in names), "tied: stored once"
    opened = AutoModelForMaskedLM.from_pretrained(tmp_path / "model").eval()
    method.eval()
    expected = method.vocabulary(method.encoder(input_ids=rows.ids).last_hidden_state)
    torch.testing.assert_close(opened(input_ids=rows.ids).logits, expected, rtol=1e-4, atol=1e-4)
    again = load_backbone(str(tmp_path / "model"))
    head = load_mlm_head(again)
    assert not head.fresh
    assert head.weight is again.model.get_input_embeddings().weight
    found = SentenceEncoder.from_pretrained(tmp_path / "model").encode(["Two dogs run"])
    np.testing.assert_allclose(found, encoder.encode(["Two dogs run"]), atol=1e-5)
