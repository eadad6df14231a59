"""What a template search chooses from, and the greedy search over it."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict

import pytest

from cotbert_core.errors import UserError
from cotbert_core.templates.template_texts import TEMPLATES, Template
from pipelines.templates.template_candidates import (
    DOUBLE_QUOTED,
    RELATIONS,
    SINGLE_QUOTED,
    Candidate,
    Lists,
    default_prefixes,
    read_prefixes,
    read_relations,
    read_templates,
)
from pipelines.templates.template_ledger import greedy_search

TABLE_4 = (
    "[X] [MASK] .",
    "[X] is [MASK] .",
    "[X] mean [MASK] .",
    "[X] means [MASK] .",
    "This [X] means [MASK] .",
    "This sentence of [X] means [MASK] .",
    'This sentence of "[X]" means [MASK] .',
    'This sentence : "[X]" means [MASK] .',
)


def asked_of(scores, lists, rounds=1):
    """What greedy_search finds and asks for, given a score for each text."""
    asked = []

    def score(text, stage):
        asked.append((text, stage))
        return scores[text]

    return greedy_search(score, lists, rounds), asked


def test_all_of_table_4_is_in_the_default_lists():
    lists = Lists(RELATIONS, default_prefixes(DOUBLE_QUOTED))
    first = [c.text for c in lists.variants(Candidate(), "relation")]
    second = [c.text for c in lists.variants(Candidate(relation="means"), "prefix")]
    assert set(TABLE_4[:4]) <= set(first)
    assert set(TABLE_4[3:]) <= set(second)
    assert TEMPLATES["promptbert/manual"].text in second


def test_the_papers_order_of_scores_leads_to_its_template():
    paper = (39.34, 47.26, 53.94, 63.56, 64.19, 68.97, 70.19, 73.44)
    scores = defaultdict(lambda: 20.0, zip(TABLE_4, paper, strict=True))
    best, _ = asked_of(scores, Lists(RELATIONS, default_prefixes(DOUBLE_QUOTED)))
    assert best.text == TABLE_4[-1]


def test_robertas_quotes_are_single_with_blanks():
    texts = [f"{prefix} means [MASK] ." for prefix in default_prefixes(SINGLE_QUOTED)]
    for name in ("promptroberta/anchor", "promptroberta/positive"):
        assert TEMPLATES[name].text in texts


def test_every_default_is_a_template_of_its_own():
    for quoted in (DOUBLE_QUOTED, SINGLE_QUOTED):
        lists = Lists(RELATIONS, default_prefixes(quoted))
        pairs = itertools.product(lists.prefixes, lists.relations)
        texts = [Candidate(prefix, relation).text for prefix, relation in pairs]
        assert len(set(texts)) == len(texts) == 22 * 14
        assert all(Template(text).stages == 1 for text in texts)


def test_empty_and_repeated_lines_are_said(tmp_path, capsys):
    path = tmp_path / "prefixes"
    path.write_text('\ufeffThis\n\n  \nThis  "[X]"\nThis "[X]"\nThis\n', encoding="utf-8")
    assert read_prefixes(path) == ("This [X]", 'This "[X]"')
    assert "2 empty and 2 repeated lines are ignored" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("read", "content", "message"),
    [
        (read_relations, "means\n[X] is\n", r"line 2: relation '\[X\] is' contains \[X\]"),
        (read_prefixes, 'This : "\n', r"line 1: prefix .* has \[X\] 0 times: give it once, bet"),
        (read_prefixes, "[X] [X]\n", r"line 1: prefix .* has \[X\] 2 times: give it once"),
        (read_templates, "[X] [MASK]\nThis [MASK] .\n", r"line 2: .* slot \[X\] 0 times"),
        (read_templates, "[X] means .\n", r"line 1: .* has no \[MASK\]"),
        (read_relations, "\n \n", "has no line with text"),
        (read_relations, None, "relations file .* cannot be read"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, read, content, message):
    path = tmp_path / "lines"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=message):
        read(path)


def test_templates_are_read_by_name_or_text(tmp_path):
    path = tmp_path / "templates"
    path.write_text("promptbert/manual\nAlso [MASK]. [X]\n[X] means <mask> .\n")
    manual = TEMPLATES["promptbert/manual"].text
    assert read_templates(path) == (manual, "Also [MASK]. [X]", "[X] means <mask> .")


@pytest.mark.parametrize("seed", range(20))
def test_greedy_equals_two_plain_loops(seed):
    draw = random.Random(seed)
    lists = Lists(("", "a", "b", "c"), ("[X]", "P [X]", "Q [X]", 'R "[X]"'))
    scores = {
        Candidate(p, r).text: draw.randint(0, 6) for p in lists.prefixes for r in lists.relations
    }
    relation, prefix = "", "[X]"
    for other in lists.relations:
        if scores[Candidate(prefix, other).text] > scores[Candidate(prefix, relation).text]:
            relation = other
    for other in lists.prefixes:
        if scores[Candidate(other, relation).text] > scores[Candidate(prefix, relation).text]:
            prefix = other
    best, asked = asked_of(scores, lists)
    assert best == Candidate(prefix, relation)
    assert [stage for _, stage in asked] == ["relation"] * 5 + ["prefix"] * 4


def test_more_rounds_continue_until_nothing_changes():
    lists = Lists(("", "a", "b"), ("[X]", "P [X]", "Q [X]"))
    scores = {Candidate(p, r).text: 0.0 for p in lists.prefixes for r in lists.relations}
    # a is best alone, P best with a, b best with P, Q best with b.
    steps = [("[X]", "a"), ("P [X]", "a"), ("P [X]", "b"), ("Q [X]", "b")]
    scores |= {Candidate(*parts).text: i + 1.0 for i, parts in enumerate(steps)}
    one, _ = asked_of(scores, lists, 1)
    two, asked = asked_of(scores, lists, 2)
    many, all_asked = asked_of(scores, lists, 9)
    assert (one, two, many) == (Candidate("P [X]", "a"), *[Candidate("Q [X]", "b")] * 2)
    assert {stage for _, stage in asked} == {"relation", "prefix", "relation 2", "prefix 2"}
    assert len(all_asked) == 1 + 3 * 6  # the third round changes nothing and is the last
