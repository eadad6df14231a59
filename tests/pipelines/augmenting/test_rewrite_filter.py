"""Which rewrites stay: every reason by a pair that has it and a near one that has not."""

from __future__ import annotations

import pytest

from cotbert_core.errors import UserError
from pipelines.augmenting.options import Limits
from pipelines.augmenting.rewrite_filter import fault, words

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
    }
    assert {text: words(text) for text in counted} == counted
