"""cotbert tokens and token-map: top tokens by the whole model, counts by hand, what is refused."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter

import numpy as np
import pytest
import torch
from made_encoders import with_encoders
from tokenizers import Tokenizer, models
from transformers import (
    AutoConfig,
    AutoModelForMaskedLM,
    AutoTokenizer,
    PreTrainedTokenizerFast,
)

from cotbert_core.encoder.backbone import load_backbone, load_tokenizer
from cotbert_core.encoder.template_denoising import template_bias
from cotbert_core.errors import UserError
from cotbert_core.readouts.mask_predictions import KINDS
from cotbert_core.templates.template_texts import TEMPLATES
from cotbert_core.templates.wrapping import BoundTemplate
from pipelines.cli import main
from pipelines.templates import token_map_plots
from pipelines.templates.mask_predictions import token_map, top_tokens_of
from pipelines.templates.options import EXAMPLES, TokenMapOptions, TokensOptions

SENTENCES = ("A man is playing the guitar.", "Two dogs run")


@pytest.fixture
def head_folder(encoder_folder, tmp_path, with_mlm_head):
    return with_mlm_head(encoder_folder, tmp_path / "headed")


def slowly(folder, template, sentence, mode, top):
    """One sentence through the whole transformers model, its decoder's input less the bias."""
    whole = AutoModelForMaskedLM.from_pretrained(folder).eval()
    is_bert = whole.config.model_type == "bert"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = template.text.replace("[X]", sentence).replace("[MASK]", tokenizer.mask_token)
    row = tokenizer(text)["input_ids"]
    last = max(i for i, token in enumerate(row) if token == tokenizer.mask_token_id)
    body = whole.bert if is_bert else whole.roberta
    head = whole.cls.predictions if is_bert else whole.lm_head
    backbone = load_backbone(folder)
    bound = BoundTemplate.bind(template, tokenizer)
    lengths = np.array([len(row) - bound.length])
    with torch.no_grad():
        hidden = body(torch.tensor([row])).last_hidden_state[0, last]
        logits = head(hidden - template_bias(backbone, bound, lengths, mode)[0])
    best = sorted(range(len(logits)), key=lambda v: -float(logits[v]))[:top]
    tokens = tokenizer.convert_ids_to_tokens(best)
    if is_bert:
        return tokens
    return [tokenizer.convert_tokens_to_string([t]).strip() or t for t in tokens]


@with_encoders("mode", ("bert", "position"), ("roberta", "pad"))
def test_top_tokens_are_those_of_the_whole_model(head_folder, family, mode):
    name = f"{family}/anchor"
    options = TokensOptions(head_folder, SENTENCES, name, 4, mode)
    rows = top_tokens_of(options)
    full = ["A man is playing the guitar.", "Two dogs run."]
    assert [row.sentence for row in rows] == list(SENTENCES)
    for row, sentence in zip(rows, full, strict=True):
        assert row.plain == slowly(head_folder, TEMPLATES[name], sentence, "none", 4)
        assert row.denoised == slowly(head_folder, TEMPLATES[name], sentence, mode, 4)
    assert any(row.plain != row.denoised for row in rows)


def test_the_template_is_promptbert_s_own(head_folder, family):
    own = "promptroberta/anchor" if family == "cot-roberta" else "promptbert/manual"
    default, named, other = (
        top_tokens_of(TokensOptions(head_folder, SENTENCES, name, 30))
        for name in (None, own, f"{family}/anchor")
    )
    assert default == named
    assert default != other


def test_a_row_after_the_last_token_is_not_predicted(head_folder):
    """Some tables are padded to a multiple of 64 rows; these are not trained."""
    model = AutoModelForMaskedLM.from_pretrained(head_folder)
    tokens = model.config.vocab_size
    model.resize_token_embeddings(tokens + 40, mean_resizing=False)
    model.save_pretrained(head_folder)
    rows = top_tokens_of(TokensOptions(head_folder, SENTENCES, top=tokens))
    for row in rows:
        assert all(isinstance(token, str) for token in (*row.plain, *row.denoised))


def test_tokens_prints_a_table(bert_folder, tmp_path, capsys, with_mlm_head):
    folder = with_mlm_head(bert_folder, tmp_path / "headed")
    assert main(["tokens", folder, "--top", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split("  ")[0] == "sentence"
    rows = top_tokens_of(TokensOptions(folder, top=2))
    for line, row in zip(lines[1:], rows, strict=True):
        cells = [row.sentence, ", ".join(row.plain), ", ".join(row.denoised)]
        assert re.split(r"\s{2,}", line) == cells
    assert len(lines) == 1 + len(EXAMPLES)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"top": 0}, "top is 0: give 1 to"),
        ({"top": 10_000}, "top is 10000: give 1 to"),
        ({"template": "none"}, "unknown template 'none'"),
        ({"sentences": ("A man.", " ")}, "sentence 2 is empty"),
        ({}, "has no masked-language-model head"),
    ],
)
def test_mistakes_about_tokens(bert_folder, changes, message):
    with pytest.raises(UserError, match=message):
        top_tokens_of(TokensOptions(bert_folder, **changes))


def test_a_template_without_room_for_the_sentence_is_refused(head_folder):
    room = load_backbone(head_folder).max_tokens
    with pytest.raises(UserError, match=f"takes at most {room}: shorten the template"):
        top_tokens_of(TokensOptions(head_folder, template="a " * room + "[X] [MASK]"))


@pytest.fixture
def text(tmp_path):
    lines = ["A man is playing the guitar .", "", "The man  runs , the dogs run ."]
    (tmp_path / "text.txt").write_text("\n".join(lines) + "\n")
    return str(tmp_path / "text.txt")


def test_the_map_counts_tokens_and_kinds(own_store, tmp_path, encoder_folder, family, text):
    out = tmp_path / "out"
    result = token_map(TokenMapOptions(encoder_folder, text), out)
    files = {"report.html", "result.json", "token-map.json", "token-map.svg"}
    assert {path.name for path in out.iterdir()} == files
    tokenizer = AutoTokenizer.from_pretrained(encoder_folder)
    blank = " " if family == "cot-roberta" else ""
    lines = ("A man is playing the guitar .", "The man runs , the dogs run .")
    counted = Counter(token for line in lines for token in tokenizer.tokenize(blank + line))
    assert result["corpus_tokens"] == counted.total()
    assert result["tokens_seen"] == len(counted)
    assert (result["corpus_sentences"], result["corpus_dropped_empty"]) == (2, 1)
    by_kind = [result[f"kind_{kind}"] for kind in KINDS]
    assert sum(by_kind) + result["left_out_unused"] == result["tokens"] == len(tokenizer)
    assert min(result[f"kind_{kind}"] for kind in ("word", "subword", "other")) > 0
    assert (result["kind_capital"] > 0) == (family == "cot-roberta")
    table = load_backbone(encoder_folder).model.get_input_embeddings().weight.detach().numpy()
    units = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
    pairs = (units @ units.T)[~np.eye(len(units), dtype=bool)]
    assert result["anisotropy"] == pytest.approx(abs(np.mean(pairs)), rel=1e-3)
    page = (out / "report.html").read_text()
    assert "text.txt, 2 sentences" in page
    assert len(page) < 1_500_000
    run = own_store.get_run(result["mlflow_run_id"])
    assert (run.info.run_name, run.info.status) == ("token-map / out", "FINISHED")
    assert run.data.metrics["kind_word"] == result["kind_word"]


# SentencePiece marks the tokens that begin a word, as XLM-R and ALBERT have them.
PIECES = models.Unigram(
    [("[PAD]", 0.0), ("[UNK]", 0.0), ("▁the", -1.0), ("▁Man", -1.0), ("ing", -1.0)], unk_id=1
)
# Without a mark, every token counts as the beginning of a word.
WHOLE_WORDS = models.WordLevel({"[PAD]": 0, "[UNK]": 1, "the": 2, "Man": 3, "dog": 4}, "[UNK]")


@pytest.mark.parametrize(("model", "words", "subwords"), [(PIECES, 1, 1), (WHOLE_WORDS, 2, 0)])
def test_the_pieces_inside_a_word_are_subwords(
    unrecorded, tmp_path, bert_folder, text, model, words, subwords
):
    folder = shutil.copytree(bert_folder, tmp_path / "pieces")
    PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(model), pad_token="[PAD]", unk_token="[UNK]"
    ).save_pretrained(folder)
    result = token_map(TokenMapOptions(str(folder), text), tmp_path / "out")
    assert {kind: result[f"kind_{kind}"] for kind in KINDS} == {
        "word": words,
        "capital": 1,
        "subword": subwords,
        "other": 2,
    }


def test_places_kept_free_are_left_out_and_counted(unrecorded, tmp_path, bert_folder, text):
    """Two [unused] tokens, and three rows of the table behind the tokenizer's last token."""
    tokenizer = AutoTokenizer.from_pretrained(bert_folder)
    tokenizer.add_tokens(["[unused0]", "[unused1]"])
    model = AutoModelForMaskedLM.from_config(AutoConfig.from_pretrained(bert_folder))
    model.resize_token_embeddings(len(tokenizer) + 3)
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "wide")
    wide = token_map(TokenMapOptions(str(tmp_path / "wide"), text), tmp_path / "out")
    assert (wide["left_out_unused"], wide["tokens"]) == (5, len(tokenizer) + 3)


def test_the_head_s_table_differs_when_it_is_not_tied(
    unrecorded, tmp_path, bert_folder, text, capsys, with_mlm_head
):
    tied, untied = (with_mlm_head(bert_folder, tmp_path / f"t{t}", tied=bool(t)) for t in (1, 0))

    def numbers(folder, table):
        place = tmp_path / f"{folder[-2:]}-{table}"
        return token_map(TokenMapOptions(folder, text, table), place)

    one, other = numbers(untied, "input"), numbers(untied, "head")
    assert (one["tied"], other["tied"]) == (None, False)
    assert one["anisotropy"] != other["anisotropy"]
    assert "note" not in capsys.readouterr().err
    one, other = numbers(tied, "input"), numbers(tied, "head")
    assert other["tied"] is True
    assert one["anisotropy"] == other["anisotropy"]
    assert one["variance_first"] == other["variance_first"]
    assert "the head shares its weights with the input embeddings" in capsys.readouterr().err
    assert "They are tied to the input" in (tmp_path / "t1-head" / "report.html").read_text()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"table": "head"}, "has no masked-language-model head"),
        ({"corpus": "blank.txt"}, r"has no text \(1 row: 1 empty\)"),
        ({"corpus": "none.txt"}, r"'none\.txt' does not exist"),
    ],
)
def test_mistakes_about_the_map(own_store, tmp_path, bert_folder, changes, message):
    (tmp_path / "blank.txt").write_text("\n")
    with pytest.raises(UserError, match=message):
        token_map(TokenMapOptions(bert_folder, **changes), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert own_store.get_experiment_by_name("cotbert") is None


def test_the_map_of_the_default_corpus_keeps_an_earlier_output(
    unrecorded, tmp_path, bert_folder, capsys
):
    command = ["token-map", bert_folder, "--output", "out"]
    assert main(command) == 0
    before = (tmp_path / "out" / "result.json").read_bytes()
    result = json.loads(before)
    assert result["tokens"] == len(load_tokenizer(bert_folder).hf)
    assert result["corpus_sentences"] == 720
    assert "720 sentences of this package" in (tmp_path / "out" / "report.html").read_text()
    assert main(command) == 2
    assert "already holds something" in capsys.readouterr().err
    assert (tmp_path / "out" / "result.json").read_bytes() == before


@pytest.mark.drawn
@pytest.mark.parametrize("highest", [0, 1, 500])
def test_a_map_is_drawn_whatever_the_counts(highest):
    points = np.random.default_rng(0).normal(size=(40, 2))
    counts = np.linspace(0, highest, 40).astype(int)
    kinds = [KINDS[i % 3] for i in range(40)]
    svg = token_map_plots.token_map(points, np.array([0.25, 0.125]), counts, kinds, "my corpus")
    shown = ("first component, 25.0% of the variance", "second component, 12.5% of the variance")
    grey = f"(grey: {(counts == 0).sum()} tokens"
    for text in (*shown, grey, "my corpus", "begins a word (14)"):
        assert text in svg
    assert "punctuation" not in svg
