"""The labelled texts of an adaptation: two halves that stay, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cotbert_core.errors import UserError
from pipelines.adapting import labelled_halves
from pipelines.adapting.labelled_halves import read_halves
from pipelines.adapting.options import AdaptOptions
from pipelines.cleaning.options import CleanOptions

KINDS = ("bill", "error", "login")


def third(number):
    return KINDS[number % 3]


def write(path, count, kind=third):
    rows = [{"body": f"ticket {n} <b>is open</b>", "kind": kind(n)} for n in range(count)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def halves_of(path, **given):
    reading = {"text_column": "body", "label_column": "kind"} | given
    return read_halves(AdaptOptions(("text.txt",), labelled=str(path), **reading))


def test_each_text_is_in_one_half_with_its_label(tmp_path):
    halves = halves_of(write(tmp_path / "t.jsonl", 60), clean=CleanOptions(steps=("markup",)))
    assert (len(halves.dev.texts), len(halves.test.texts)) == (30, 30)
    for half in (halves.dev, halves.test):
        numbers = [int(text.split()[1]) for text in half.texts]
        assert [KINDS[label] for label in half.labels] == [KINDS[n % 3] for n in numbers]
    assert {*halves.dev.texts, *halves.test.texts} == {f"ticket {n} is open" for n in range(60)}


def test_few_texts_change_sides_when_others_are_added(tmp_path):
    before, after = (halves_of(write(tmp_path / f"{n}.jsonl", n)).dev.texts for n in (300, 310))
    assert len(set(before) - set(after)) <= 10


def test_a_continued_job_sees_that_a_text_or_a_label_has_changed(tmp_path):
    given = [(60, third), (60, third), (60, lambda number: KINDS[number % 2]), (61, third)]
    plain, again, *others = (
        halves_of(write(tmp_path / "t.jsonl", count, kind)).stamp for count, kind in given
    )
    assert plain == again
    assert plain not in others


def test_of_many_texts_some_are_chosen(tmp_path, monkeypatch):
    monkeypatch.setattr(labelled_halves, "MOST_DEV_TEXTS", 20)
    halves = halves_of(write(tmp_path / "t.jsonl", 60))
    assert len(halves.dev.texts) == len(halves.test.texts) == 20
    assert np.unique(halves.dev.labels).tolist() == [0, 1, 2]


def test_an_adaptation_without_labels_has_none():
    assert read_halves(AdaptOptions(("text.txt",))) is None


@pytest.mark.parametrize(
    ("count", "kind", "message"),
    [
        (60, lambda number: "bill", "60 different texts and 1 label:"),
        (60, lambda number: f"{number // 2}", "at least 6 are needed, so give more labelled texts"),
        (11, lambda number: KINDS[number % 2], "is divided into two halves, and 5 texts of one"),
        (60, lambda number: KINDS[number == 7], "all texts of one have the same label: at least"),
    ],
)
def test_labels_that_cannot_choose_are_refused(tmp_path, count, kind, message):
    with pytest.raises(UserError, match=message):
        halves_of(write(tmp_path / "t.jsonl", count, kind))


def test_a_column_of_labels_needs_a_file():
    with pytest.raises(UserError, match="label_column is 'kind' without labelled texts"):
        read_halves(AdaptOptions(("text.txt",), label_column="kind"))
