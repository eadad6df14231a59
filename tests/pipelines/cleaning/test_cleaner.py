"""The cleaner against a loop over one text at a time; options that cannot be."""

from __future__ import annotations

import pickle
import random
from collections import Counter

import numpy as np
import pytest

from cotbert_core.errors import UserError
from pipelines.cleaning.cleaner import Cleaned, Cleaner
from pipelines.cleaning.filters import filters_of
from pipelines.cleaning.options import CleanOptions
from pipelines.cleaning.splitting import split
from pipelines.cleaning.steps import STEPS, STEPS_BEFORE_SPLIT
from pipelines.reading.bad_rows import PREFIXES

PIECES = (
    "The ferry left at nine.",
    "<b>Nobody</b> was on it &amp; it rained.",
    "See https://a.org/b for more.",
    "A red @-@ tipped claw .",
    "An <unk> word .",
    "so\u00adft cafe\u0301",
    "1 2 3 4 5 6 7",
    "spam spam spam spam spam",
    "Der Fluss fror zu, bevor der erste Schnee fiel.",
)
LINES = ("= A heading =\nA red @-@ tipped claw .", "## One\n<b>Two</b>\nhttps://a.org\n\u200b")
WHOLE = (*LINES, "= A heading =", "<br>", "https://a.org", "\u200b", "12.5")
EVERYTHING = CleanOptions(
    steps=tuple(STEPS), max_non_letters=0.5, repeated=0.6, language=("en", "de")
)


def some_texts(count: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    texts = [" ".join(draw.choices(PIECES, k=draw.randint(1, 4))) for _ in range(count)]
    return [draw.choice(WHOLE) if draw.random() < 0.1 else text for text in texts]


def slow_clean(rows: list[tuple[str, ...]], options: CleanOptions) -> Cleaned:
    """The rows one after another; of each, stage by stage, its texts."""
    kept, origin, places, sentences = [], [], [], 0
    changed, dropped, added = Counter(), Counter(), 0
    rules = filters_of(options).values()
    steps = STEPS_BEFORE_SPLIT if options.split else STEPS
    for number, texts in enumerate(rows):
        reason = None
        for name in options.steps:
            before, texts = texts, tuple(map(steps[name], texts))
            for prefix, old, new in zip(PREFIXES, before, texts, strict=False):
                changed[prefix + name] += bool(new) and new != old
                reason = reason or (None if new else f"{prefix}emptied_by_{name}")
            if reason:
                break
        if reason:
            dropped[reason] += 1
            sentences += options.split is None
            continue
        made = [(t,) for t in split(texts[0], options.split)] if options.split else [texts]
        changed["split"] += len(made) > 1
        added += len(made) - 1
        for row in made:
            reasons = [
                p + r
                for rule in rules
                for p, t in zip(PREFIXES, row, strict=False)
                if (r := rule(t))
            ]
            dropped.update(reasons[:1])
            if not reasons:
                kept.append(row)
                origin.append(number)
                places.append(sentences)
            sentences += 1
    columns = [list(column) for column in zip(*kept, strict=True)]
    places = np.array(places)
    return Cleaned(columns, np.array(origin), +changed, dropped, added, places, None)


def same(left: Cleaned, right: Cleaned) -> bool:
    assert left.columns == right.columns
    assert left.rows.tolist() == right.rows.tolist()
    assert left.rows.dtype == right.rows.dtype == np.int64
    assert left.sentences.tolist() == right.sentences.tolist()
    assert (left.changed, left.dropped, left.added) == (right.changed, right.dropped, right.added)
    return True


SPLIT = CleanOptions(
    steps=tuple(STEPS), split="en", max_non_letters=0.5, repeated=0.6, language=("en",)
)


@pytest.mark.parametrize(
    "options", [CleanOptions(), EVERYTHING, CleanOptions(steps=("unicode", "markup")), SPLIT]
)
def test_the_cleaner_does_what_a_loop_does(options):
    texts = some_texts(300)
    found = Cleaner(options)([texts])
    assert same(found, slow_clean([(text,) for text in texts], options))
    assert len(texts) + found.added == len(found.texts) + found.dropped.total()
    assert texts == some_texts(300), "what was given is left alone"


def test_the_loop_saw_every_change_and_every_reason():
    """So that the comparison above compares something."""
    found = Cleaner(SPLIT)([some_texts(300)])
    assert set(found.changed) == {*STEPS, "split"}
    assert set(found.dropped) == {
        *(f"emptied_by_{name}" for name in ("wikitext", "markup", "urls", "control")),
        *("unk", "max_non_letters", "repeated", "language", "language_unsure"),
    }
    assert found.added > 100


@pytest.mark.parametrize("columns", [2, 3])
def test_rows_with_paired_texts_do_what_a_loop_does(columns):
    texts = [some_texts(300, seed) for seed in range(columns)]
    found = Cleaner(EVERYTHING, paired_texts=columns - 1)(texts)
    assert same(found, slow_clean(list(zip(*texts, strict=True)), EVERYTHING))
    assert found.changed["augmented_urls"] > 0
    assert found.dropped["augmented_unk"] > 0
    assert found.dropped["augmented_emptied_by_wikitext"] > 0
    assert (found.dropped["negative_unk"] > 0) == (columns == 3)
    assert len(texts[0]) == len(found.rows) + found.dropped.total()


def test_neither_batches_nor_pickling_matter():
    texts, cleaner = some_texts(200), Cleaner(EVERYTHING)
    whole, unpickled = cleaner([texts]), pickle.loads(pickle.dumps(cleaner))
    assert unpickled == cleaner
    parts = [unpickled([texts[start : start + 7]]) for start in range(0, len(texts), 7)]
    assert [t for part in parts for t in part.texts] == whole.texts
    assert sum((part.changed for part in parts), Counter()) == whole.changed
    assert sum((part.dropped for part in parts), Counter()) == whole.dropped


def test_steps_are_done_in_their_order_whatever_order_they_are_named_in():
    options = CleanOptions(steps=("unicode", "urls", "markup", "urls"))
    assert options.steps == ("markup", "urls", "unicode")
    assert options == CleanOptions(steps=("urls", "markup", "unicode"))
    # The link is gone before its address could be taken for text.
    assert Cleaner(options)([["[the guide](https://a.org) helps"]]).texts == ["the guide helps"]


PAGE = (
    '<h2 id="a">Returns</h2><p>You <b>can</b> return it.</p><ul><li>In 30 days</li><li>Unused '
    '<img src="a.png"> only</li></ul>Hello,<br/>Tom<table><tr><td>a</td><td>b</td></tr></table>'
)


@pytest.mark.parametrize("language", ["en", None])
def test_a_block_of_html_ends_a_sentence_and_without_a_split_no_line(language):
    found = Cleaner(CleanOptions(steps=("markup",), split=language))([[PAGE]]).texts
    blocks = ["Returns", "You can return it.", "In 30 days", "Unused only", "Hello,", "Tom", "a b"]
    assert found == (blocks if language else [" ".join(blocks)])


def test_nothing_in_nothing_out_and_an_empty_text_is_dropped():
    found = Cleaner(EVERYTHING)([[]])
    assert (found.texts, found.rows.tolist(), found.changed + found.dropped) == ([], [], {})
    assert Cleaner(CleanOptions())([["a", ""]]).dropped == {"empty": 1}


def test_wikitext_2_becomes_sentences(shared):
    """The real file: no mark of its tokenizer and no heading is left, and rows add up."""
    path = shared / "data" / "corpus" / "wikitext2_valid.txt"
    lines = [
        line for raw in path.read_text("utf-8").splitlines() if (line := " ".join(raw.split()))
    ]
    found = Cleaner(CleanOptions(steps=("wikitext",), split="en"))([lines])
    headings = sum(line.startswith("= ") and line.endswith(" =") for line in lines)
    assert found.dropped["emptied_by_wikitext"] == headings == 620
    assert len(lines) + found.added == len(found.texts) + found.dropped.total()
    assert len(found.texts) > 2000
    for mark in ("<unk>", "@-@", "@,@", "@.@", " , ", " . ", "( ", " )"):
        assert not any(mark in text for text in found.texts), mark
    assert sum(text[-1] in ".!?\"')" for text in found.texts) > 0.96 * len(found.texts)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": ("urls", "html")}, "unknown cleaning step 'html': choose one of control, mar"),
        ({"max_non_letters": 1.5}, "max_non_letters is 1.5: give a share from 0 to 1"),
        ({"repeated": -0.1}, "repeated is -0.1: give a share"),
        ({"repeated": float("nan")}, "repeated is nan: give a share"),
        ({"language": ("en",), "language_probability": 50}, "language_probability is 50: give"),
        ({"language": ("en", "xx")}, "unknown language to keep 'xx': choose one of .*, de, .*, en"),
        ({"split": "xx"}, "split is 'xx', a language without sentence rules"),
        ({"min_tokens": 0}, "min_tokens is 0: give at least 1"),
        ({"max_tokens": -3}, "max_tokens is -3: give at least 1"),
        ({"min_tokens": 9, "max_tokens": 5}, "min_tokens is 9 and max_tokens is 5"),
    ],
)
def test_options_that_cannot_be_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        CleanOptions(**options)


def test_rows_with_paired_texts_are_not_split():
    options = CleanOptions(split="en")
    assert Cleaner(options).options == options
    with pytest.raises(UserError, match="split is 'en' and the rows have paired texts"):
        Cleaner(options, paired_texts=1)
