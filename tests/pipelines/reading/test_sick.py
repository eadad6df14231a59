"""SICK's pairs as triples: against the rule in plain loops, and every line accounted for."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from read_inputs import read_all

from cotbert_core.errors import UserError
from pipelines.reading import sick
from pipelines.reading.columns import check_reading
from pipelines.reading.read_plan import FILE_BITS
from pipelines.reading.readers import read
from pipelines.reading.sources import plan

HEADER = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
E, C, N = "ENTAILMENT", "CONTRADICTION", "NEUTRAL"


def folder(home: Path, pairs, header=HEADER) -> str:
    """A folder of SICK with these (A, B, label), and evaluation files that must not be read."""
    home.mkdir(exist_ok=True)
    lines = [f"{n}\t{a}\t{b}\t3.0\t{label}\n" for n, (a, b, label) in enumerate(pairs)]
    (home / "SICK_train.txt").write_text(header + "".join(lines), encoding="utf-8")
    for name in ("SICK_trial.txt", "SICK_test_annotated.txt"):
        (home / name).write_text(f"{HEADER}1\ta\tno\t1.0\t{E}\n2\ta\tno\t1.0\t{C}\n")
    return f"sick:{home}"


def rows(item):
    """The triples, and the dropped sentences by reason."""
    found = list(sick.triples(sick.train_file(item)))
    dropped = Counter(row for row in found if isinstance(row, str))
    return [row for row in found if isinstance(row, tuple)], dropped


def reference(pairs):
    """The triples and the dropped sentences, one sentence at a time over all pairs."""
    sentences = []
    for a, b, _ in pairs:
        sentences += [s for s in (a, b) if s not in sentences]
    triples, dropped = [], Counter()
    for s in dict.fromkeys(sentences):
        entailed, against = [], []
        for a, b, label in pairs:
            if label == E and a == s and b not in entailed:
                entailed.append(b)
            for one, other in ((a, b), (b, a)):
                if label == C and one == s and other not in against:
                    against.append(other)
        if not entailed:
            dropped["no_entailment"] += 1
        elif not against:
            dropped["no_contradiction"] += 1
        else:
            triples += [(s, e, against[i % len(against)]) for i, e in enumerate(entailed)]
    return triples, dropped


@pytest.mark.parametrize("seed", range(8))
def test_triples_are_those_of_the_rule(tmp_path, seed):
    draw = random.Random(seed)
    names = [f"sentence {n}" for n in range(12)]
    pairs = [(*draw.sample(names, 2), draw.choice((E, E, E, C, N))) for _ in range(60)]
    found = rows(folder(tmp_path, pairs))
    assert found == reference(pairs)
    assert len(found[0]) > 10


def test_sentences_that_differ_in_white_space_are_one(tmp_path):
    pairs = [("a  b", "e", E), (" a b ", "e ", E), ("c", "a b", C)]
    assert rows(folder(tmp_path, pairs)) == ([("a b", "e", "c")], {"no_entailment": 2})


def test_lines_that_cannot_be_used_are_counted_and_no_other_is_lost(tmp_path):
    item = folder(tmp_path, [("a", '"b', E), ("x", "y", "MAYBE"), (" ", "y", C)])
    with sick.train_file(item).open("ab") as file:
        file.write(b"8\ta\tcaf\xe9\t1.0\tENTAILMENT\n9\tonly\n\n10\t'a\ta\t1.0\tCONTRADICTION\r\n")
    found = read_all(item)
    assert found.rows == [("a", '"b', "'a")]
    bad = {"unknown_label": 1, "empty": 2, "invalid_utf8": 1, "null": 1}
    assert found.dropped == {**bad, "no_entailment": 2}


def test_columns_are_found_by_name(tmp_path):
    item = folder(tmp_path, [], "entailment_judgment\tsentence_B\tsentence_A\n")
    with sick.train_file(item).open("a") as file:
        file.write(f"{E}\tb\ta\n{C}\tc\ta\n")
    assert rows(item)[0] == [("a", "b", "c")]


@pytest.mark.parametrize("column", sick.COLUMNS)
def test_a_file_without_a_column_and_a_folder_without_the_file_are_refused(tmp_path, column):
    item = folder(tmp_path, [], HEADER.replace(column, "other"))
    with pytest.raises(UserError, match=rf"SICK_train\.txt' has no column '{column}': it has pair"):
        plan([item])
    with pytest.raises(UserError, match=r"sick:.*holds no SICK_train\.txt; give the folder SICK"):
        plan([f"{item}/none"])


def test_a_relative_folder_is_the_callers(tmp_path, monkeypatch):
    folder(tmp_path / "SICK", [("a", "b", E), ("a", "c", C)])
    monkeypatch.chdir(tmp_path)
    made = plan(["sick:SICK", f"sick:{tmp_path / 'SICK'}"])
    assert made.files == [f"sick:{tmp_path / 'SICK'}"]
    monkeypatch.chdir("/")  # workers run in another folder
    assert [p.texts for p in read(made.shards[0], made)] == [["a"]]


@pytest.mark.parametrize(
    ("more", "paired_columns"),
    [("a.txt", ()), ("a.csv", ()), ("a.csv", ("b",)), (None, ("b",)), ("docstrings:yaml", ())],
)
def test_input_beside_sick_must_be_triples(tmp_path, more, paired_columns):
    inputs = [folder(tmp_path / "SICK", [("a", "b", E)]), *([more] if more else [])]
    if more and "." in more:
        inputs[1] = str(tmp_path / more)
        (tmp_path / more).write_text("text,b,c\nx,y,z\n")
    with pytest.raises(UserError, match=r"input 'sick:.*' gives triples, so all other input must"):
        plan(inputs, paired_columns=paired_columns)


def test_sick_and_a_file_of_triples_are_read_together(tmp_path):
    item = folder(tmp_path / "SICK", [("a", "b", E), ("c", "a", C)])
    (tmp_path / "a.csv").write_text("sent0,sent1,hard_neg\nx,y,z\n")
    options = {"text_column": "sent0", "paired_columns": ("sent1", "hard_neg")}
    found = read_all(tmp_path / "a.csv", item, **options)
    assert found.rows == [("x", "y", "z"), ("a", "b", "c")]
    assert found.ids == [0, 1 << FILE_BITS]
    assert plan([item]).columns == ("augmented", "negative")


def test_the_real_file_gives_251_triples(shared):
    triples, dropped = rows(f"sick:{shared / 'data' / 'senteval' / 'SICK'}")
    assert len(triples) == len(set(triples)) == 251
    assert len({sentence for sentence, _, _ in triples}) == 200
    assert dropped == {"no_entailment": 3660, "no_contradiction": 942}


def test_the_columns_of_triples_may_be_named(tmp_path):
    item = folder(tmp_path, [("a", "b", E), ("a", "c", C)])
    made = plan([item], "sent0", paired_columns=("sent1", "hard_neg"))  # prepare --triples
    check_reading(made)
    assert [p.texts for p in read(made.shards[0], made)] == [["a"]]
