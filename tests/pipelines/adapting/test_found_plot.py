"""The bars of an adaptation: in which order, in which colours."""

from __future__ import annotations

import re

import pytest

from pipelines.adapting.found_plot import found_plot

pytestmark = pytest.mark.drawn

ENTRY = {"found_first": 50.0, "low": 45.0, "high": 55.0}
SEARCHES = ("held-out", "held-out-with-keywords", "held-out-passages")
SCORES = dict.fromkeys((*SEARCHES, "held-out-keywords", "same-label"), ENTRY)


def bars(chosen, searches=SEARCHES):
    names = ("untouched", "denosent-rest", "simcse")
    table = {name: {"before": 50.0, "after": 50.0} for name in searches}
    result = {"chosen": chosen, "table": table}
    shown = found_plot(result, dict.fromkeys(names, SCORES), str.upper)
    colours = re.findall(r"fill: var\(--(axis|blue|orange)", shown)
    labels = re.findall(r"<title>(.+): 50.0, 95 % interval 45.0 to 55.0</title>", shown)
    return list(zip(labels, colours, strict=True))


def test_the_new_encoder_follows_the_untouched_one_in_each_search():
    assert bars("denosent-rest") == [
        ("UNTOUCHED", "axis"),
        ("DENOSENT-REST", "orange"),
        ("keyword search alone", "axis"),
        ("UNTOUCHED, with keyword search", "axis"),
        ("DENOSENT-REST, with keyword search", "orange"),
        ("UNTOUCHED, by passages", "axis"),
        ("DENOSENT-REST, by passages", "orange"),
        ("SIMCSE", "blue"),
    ]


def test_an_encoder_that_was_handed_back_untouched_is_shown_once():
    assert bars("untouched", SEARCHES[:2]) == [
        ("UNTOUCHED", "orange"),
        ("keyword search alone", "axis"),
        ("UNTOUCHED, with keyword search", "orange"),
        ("DENOSENT-REST", "blue"),
        ("SIMCSE", "blue"),
    ]


def test_the_bars_of_an_adaptation_by_labels_are_those_of_the_labels():
    assert bars("simcse", ("same-label", *SEARCHES)) == [
        ("UNTOUCHED", "axis"),
        ("SIMCSE", "orange"),
        ("DENOSENT-REST", "blue"),
    ]
