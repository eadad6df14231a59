"""Template generation by a tiny T5: the joint beam against plain loops, and texts of outputs."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
import torch
from tiny_t5 import PIECES, START, WORDS, tiny_t5

from cotbert_core.errors import UserError
from cotbert_core.files import read_json, write_json
from cotbert_core.template_search.generation import (
    FORMS,
    SENTINELS,
    Definition,
    fill_blanks,
    load_generator,
    template_text,
    templates_of,
)
from cotbert_core.template_search.joint_beam import Output, joint_beam

DEFINITIONS = (
    Definition("it", "called means it"),
    Definition("called", "it"),
    Definition("means", "means called it it means"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_t5(tmp_path_factory.mktemp("t5"))


@pytest.fixture(scope="module")
def generator(folder):
    """The tiny T5 with no other words than WORDS, so that all outputs can be counted."""
    opened = load_generator(folder)
    ids = [PIECES.index(word) for word in WORDS]
    opened.words[:] = False
    opened.words[ids] = True
    return opened


@pytest.fixture(scope="module")
def exact(folder):
    from transformers import T5ForConditionalGeneration

    opened = T5ForConditionalGeneration.from_pretrained(folder, dtype=torch.float64)
    return opened.eval().requires_grad_(False)


def every_output(max_tokens):
    """All outputs of at most `max_tokens` words in two blanks."""
    first, second, third = (PIECES.index(s) for s in SENTINELS)
    words = [PIECES.index(word) for word in WORDS]
    for count in range(max_tokens + 1):
        for filled in itertools.product(words, repeat=count):
            for cut in range(count + 1):
                yield (first, *filled[:cut], second, *filled[cut:], third)


@torch.inference_mode()
def slow_scores(model, tokenizer, definitions, form, outputs):
    """Of each output the mean over definitions of log P(output | definition), in float64."""
    longest = max(map(len, outputs))
    rows = torch.tensor([[START, *output, *[0] * (longest - len(output))] for output in outputs])
    total = 0.0
    for definition in definitions:
        text = FORMS[form][0].format(definition=definition.text, word=definition.word)
        ids = tokenizer(text, return_tensors="pt").input_ids.expand(len(rows), -1)
        log_probabilities = model(input_ids=ids, decoder_input_ids=rows).logits.log_softmax(-1)
        tokens = log_probabilities.gather(2, rows[:, 1:, None])[..., 0]
        total += torch.stack([row[: len(o)].sum() for row, o in zip(tokens, outputs, strict=True)])
    return dict(zip(outputs, (total / len(definitions)).tolist(), strict=True))


def test_a_sentinel_in_what_t5_reads_is_one_token(generator):
    for form, (text, _) in FORMS.items():
        ids = generator.tokenizer(text.format(definition="it means", word="called")).input_ids
        read = generator.tokenizer.convert_ids_to_tokens(ids)
        plain = ["▁it", "▁means"]
        blanks = ["<extra_id_0>", "▁called", "<extra_id_1>"]
        expected = [*plain, *blanks] if form == "before" else [*blanks, *plain]
        assert read == [*expected, "</s>"]


@pytest.mark.parametrize("form", FORMS)
def test_a_beam_as_wide_as_all_outputs_finds_what_loops_find(generator, exact, form):
    scores = slow_scores(exact, generator.tokenizer, DEFINITIONS, form, [*every_output(2)])
    assert len(scores) == 1 + 4 * 2 + 16 * 3
    found = fill_blanks(generator, DEFINITIONS, form, beam=1000, max_tokens=2, count=1000)
    assert {o.tokens for o in found} == set(scores)
    assert [o.tokens for o in found[:5]] == sorted(scores, key=lambda o: -scores[o])[:5]
    for output in found:
        assert output.score == pytest.approx(scores[output.tokens], abs=1e-4)


def random_tables(seed, size=7):
    """Log-probabilities that depend on all tokens so far, of a made-up language."""
    draw = random.Random(seed)
    known = {}

    def following(tokens):
        for row in map(tuple, tokens.tolist()):
            known.setdefault(row, [draw.gauss(0, 1) for _ in range(size)])
        rows = [known[row] for row in map(tuple, tokens.tolist())]
        return torch.log_softmax(torch.tensor(rows, dtype=torch.float64), dim=-1)

    return following


@pytest.mark.parametrize("beam", [1, 2, 3, 5])
def test_a_narrow_beam_equals_its_definition(beam):
    following, sentinels, max_tokens = random_tables(beam), (1, 2, 3), 3
    words = torch.tensor([False] * 4 + [True] * 3)
    live = [((0, 1), float(following(torch.tensor([[0]]))[0, 1]))]
    ended = []
    while live:
        longer = []
        for tokens, score in live:
            after = following(torch.tensor([tokens]))[0]
            used = sum(token > 3 for token in tokens)
            choices = [4, 5, 6] if used < max_tokens else []
            choices.append(3 if 2 in tokens else 2)
            longer += [((*tokens, c), score + float(after[c])) for c in choices]
        kept = sorted(longer, key=lambda pair: -pair[1])[:beam]
        ended += [pair for pair in kept if pair[0][-1] == 3]
        live = [pair for pair in kept if pair[0][-1] != 3]
    found = joint_beam(following, 0, sentinels, words, beam=beam, max_tokens=max_tokens, count=99)
    expected = sorted(ended, key=lambda pair: -pair[1])
    assert [(0, *o.tokens) for o in found] == [tokens for tokens, _ in expected]
    assert [o.score for o in found] == pytest.approx([score for _, score in expected])


@pytest.mark.parametrize("count", [1, 3])
def test_an_early_end_loses_nothing_and_saves_steps(count):
    words = torch.tensor([False] * 4 + [True] * 3)
    steps = []
    for seed in range(20):
        reported = []
        whole, short = (
            joint_beam(
                random_tables(seed),
                0,
                (1, 2, 3),
                words,
                beam=10_000,
                max_tokens=4,
                count=wanted,
                on_step=reported.append,
            )
            for wanted in (9999, count)
        )
        assert short == whole[:count]
        steps.append(reported[-1])
    assert min(steps) < 6


def output_of(text, score=0.0):
    return Output(tuple(PIECES.index(piece) for piece in text.split()), score)


@pytest.mark.parametrize(
    ("output", "form", "text"),
    [
        ("<extra_id_0> ▁means <extra_id_1> . <extra_id_2>", "before", "[X] means [MASK]."),
        ("<extra_id_0> ▁means <extra_id_1> ▁it <extra_id_2>", "before", "[X] means [MASK] it"),
        ("<extra_id_0> . ▁it <extra_id_1> <extra_id_2>", "before", "[X]. it [MASK]"),
        ("<extra_id_0> ▁called <extra_id_1> . <extra_id_2>", "after", "called [MASK]. [X]"),
        ("<extra_id_0> <extra_id_1> <extra_id_2>", "after", "[MASK] [X]"),
        ("<extra_id_0> [X] <extra_id_1> <extra_id_2>", "after", None),
        ("<extra_id_0> ▁[MASK] <extra_id_1> <extra_id_2>", "before", None),
        ("<extra_id_0> ▁means <extra_id_1>", "before", None),
    ],
)
def test_the_template_of_an_output(generator, output, form, text):
    assert template_text(generator.tokenizer, output_of(output).tokens, form) == text


def test_templates_are_distinct_and_the_likeliest_first(generator):
    outputs = {
        "before": [
            output_of("<extra_id_0> ▁means <extra_id_1> . <extra_id_2>", -3.0),
            output_of("<extra_id_0> [X] <extra_id_1> . <extra_id_2>", -1.0),
            output_of("<extra_id_0> ▁means <extra_id_1> . <extra_id_2>", -4.0),
        ],
        "after": [output_of("<extra_id_0> <extra_id_1> . <extra_id_2>", -2.0)],
    }
    generated = templates_of(generator, outputs, 9)
    assert generated.templates == [("[MASK]. [X]", -2.0), ("[X] means [MASK].", -3.0)]
    assert (generated.malformed, generated.repeated) == (1, 1)
    assert templates_of(generator, outputs, 1).templates == [("[MASK]. [X]", -2.0)]


def test_only_words_may_fill_a_blank(folder):
    words = load_generator(folder).words
    assert len(words) == len(PIECES) + 3
    chosen = [PIECES[i] for i in words.nonzero().flatten().tolist()]
    assert chosen == [*WORDS, "[X]", "▁[MASK]"]


def test_models_that_cannot_be_used(tmp_path, bert_folder, monkeypatch):
    from cotbert_core.template_search import generation

    monkeypatch.setattr(generation, "hub_answers", lambda: False)
    blank = tiny_t5(tmp_path / "blank", [p for p in PIECES if p != "<extra_id_1>"])
    started = read_json(Path(tiny_t5(tmp_path / "unstarted"), "config.json"))
    del started["decoder_start_token_id"]
    write_json(tmp_path / "unstarted" / "config.json", started)
    (tmp_path / "empty").mkdir()
    mistakes = {
        "./none": "model folder './none' does not exist: give an existing folder or a hub name",
        "nobody/no-such-t5": "model 'nobody/no-such-t5' cannot be loaded",
        str(tmp_path / "empty"): "empty' cannot be loaded",
        bert_folder: "has no tokens <extra_id_0> to <extra_id_2>: give a model of the T5 family",
        blank: "has no tokens <extra_id_0> to <extra_id_2>",
        str(tmp_path / "unstarted"): "has no decoder_start_token_id in its config.json",
    }
    for name, message in mistakes.items():
        with pytest.raises(UserError, match=message):
            load_generator(name)
