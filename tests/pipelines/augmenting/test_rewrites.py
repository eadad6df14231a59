"""Rewrites: which stay, and how those that were made survive a stop.

Each reason of the filter has a pair that has it and a near one that has not. Whatever moment a
writer of the ledger is stopped at, whole lines stay and nothing else.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from cotbert_core.errors import UserError
from cotbert_core.templates.ragged_ids import Ragged
from pipelines.augmenting.ledger import Rewrite, open_ledger, read_ledger
from pipelines.augmenting.options import Limits
from pipelines.augmenting.parts import PartPlan, with_rewrites
from pipelines.augmenting.rewrite_filter import fault, words
from pipelines.storage.corpus import corpus_table

SOURCE = "A man is playing the guitar."


@pytest.mark.parametrize(
    ("source", "rewrite", "reason"),
    [
        (SOURCE, "The guitar is played by a man.", None),
        (SOURCE, "", "empty"),
        (SOURCE, " \n\t", "empty"),
        (SOURCE, "a MAN is, playing -- the  guitar!", "equal"),
        (SOURCE, "A man is playing the guitars.", None),
        ("\uff21 man", "a man", "equal"),  # a full-width letter
        ("Stra\u00dfe 5", "STRASSE 5", "equal"),
        ("it costs 5", "it costs 6", None),
        ("it costs $5", "it costs 5", None),  # a symbol says something
        ("\u0915\u0940", "\u0915\u093e", None),  # Hindi: they differ by their vowel sign alone
        ("?!", "...", "equal"),
        (SOURCE, "A man plays", None),  # 3 words of 6
        (SOURCE, "Man plays", "too_short"),
        (SOURCE, "one two three four five six seven eight nine ten 11 12", None),
        (SOURCE, "one two three four five six seven eight nine ten 11 12 13", "too_long"),
        ("\u6211\u5728\u5f39\u5409\u4ed6", "\u6211\u5f39", "too_short"),
        ("\u6211\u5728\u5f39\u5409\u4ed6", "\u4ed6\u6b63\u5728\u5f39\u5409\u4ed6", None),
    ],
)
def test_reasons(source, rewrite, reason):
    assert fault(source, rewrite, Limits()) == reason


@pytest.mark.parametrize(
    ("source", "rewrite", "reason"),
    [
        (SOURCE, "As an AI language model, I do not.", "refusal"),
        (SOURCE, "I\u2019m sorry, I will not do that.", "refusal"),
        (SOURCE, "I can't  assist with that request.", "refusal"),
        (SOURCE, "Sorry, but I am not able to do so.", "refusal"),
        ("I can't help with a guitar.", "Sorry, I cannot help with a guitar.", None),
        ("He could not help her.", "He was unable to help her.", None),
        ("It failed to provide heat.", "It was not able to provide heat.", None),
        (SOURCE, "We are unable to provide a guitar.", "refusal"),
        ("My apologies for the late reply.", "I'm sorry for the late reply.", None),
        ("He will not make it today.", "He cannot come today.", None),
        (SOURCE, "Has an air of guitars about him.", None),
        (SOURCE, "1. A guitar is played.\n2. A man plays.", "several_lines"),
        (SOURCE, "\n A guitar is played by a man. \n", None),
    ],
)
def test_a_models_answer_is_also_searched_for_refusals_and_lists(source, rewrite, reason):
    assert fault(source, rewrite, Limits(), by_model=True) == reason
    if reason is not None:
        assert fault(source, rewrite, Limits()) != reason, "only a model refuses"


def test_bounds_are_options_and_must_let_an_equal_length_through():
    assert fault("a b c d", "x", Limits(0.25, 2)) is None
    assert fault("a b c d", "x", Limits(0.26, 2)) == "too_short"
    assert fault("a b", "x y z", Limits(0.5, 1.4)) == "too_long"
    for low, high in ((1.1, 2), (0.5, 0.9), (-0.1, 2), (0.5, float("inf")), (float("nan"), 2)):
        with pytest.raises(UserError, match="give a min_ratio from 0 to 1"):
            Limits(low, high)


def test_words_are_counted_in_scripts_with_and_without_blanks():
    counted = {
        "two dogs": 2,
        "it's the dog's": 3,
        "\u6211\u662f": 2,
        "GPU\u6211\u662f 5": 4,
        "...": 1,
        "": 1,
        "caf\u00e9 \u0434\u0430": 2,
        "\u0939\u093f\u0928\u094d\u0926\u0940 \u092d\u093e\u0937\u093e": 2,  # Hindi
    }
    assert {text: words(text) for text in counted} == counted


ROWS = [
    Rewrite(5, "a \u00e9 line\nbreak", tokens_in=7, tokens_out=2),
    Rewrite(-3, None, "failed", tokens_in=9),
    Rewrite(2**62, "", cut=True),
]


def test_a_part_without_rows_stays_one(bert_folder):
    """The last part of a corpus has none if token bounds drop them all."""
    tokenizer = Path(bert_folder, "tokenizer.json").read_text()
    plan = PartPlan(Path(), Path(), Path(), (), tokenizer, 8, Limits(), by_model=True)
    none = Ragged.from_lists([])
    table = corpus_table(pa.array([], pa.int64()), [pa.array([], pa.string())], [none])
    part, summary = with_rewrites(plan, table, {})
    assert (part.num_rows, summary["rows"], summary["rewritten"]) == (0, 0, 0)
    assert summary["lengths"] == [0] * 9


def write(path, rewrites):
    with open_ledger(path) as ledger:
        ledger.add(rewrites)


def test_a_second_rewrite_of_a_row_is_not_kept(tmp_path):
    path = tmp_path / "a.jsonl"
    write(path, ROWS)
    before = path.read_bytes()
    with open_ledger(path) as ledger:
        ledger.add([Rewrite(5, "another"), Rewrite(6, "new")])
        assert (ledger.rows[5], ledger.rows[6].text) == (ROWS[0], "new")
    assert path.read_bytes() == before + b'{"id": 6, "text": "new"}\n'


def test_cut_anywhere_it_continues_with_whole_lines(tmp_path):
    whole = tmp_path / "whole.jsonl"
    write(whole, ROWS)
    content = whole.read_bytes()
    for size in range(len(content) + 1):
        path = tmp_path / f"{size}.jsonl"
        path.write_bytes(content[:size])
        kept = content[:size].count(b"\n")
        assert list(read_ledger(path).values()) == ROWS[:kept]
        write(path, ROWS)
        assert path.read_bytes() == content


def test_lines_that_are_no_rows_are_passed_over(tmp_path):
    path = tmp_path / "a.jsonl"
    assert read_ledger(path) == {}
    write(path, ROWS[:1])
    junk = b'\0\0\0\n{"id": 5}\n7\n{"id": 1, "x": 2}\n'
    path.write_bytes(junk + path.read_bytes())
    assert read_ledger(path) == {5: ROWS[0]}


def test_two_cannot_write_at_a_time(tmp_path):
    path = tmp_path / "a.jsonl"
    with (
        open_ledger(path) as ledger,
        pytest.raises(UserError, match=r"is being written by process .*: wait"),
        open_ledger(path, wait=0.0),
    ):
        pass
    ledger.rows.clear()
    write(path, ROWS)
    assert len(read_ledger(path)) == 3
