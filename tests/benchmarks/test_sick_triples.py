"""SICK's pairs as triples: against the rule in plain loops, and as `cotbert prepare` reads them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks.study import runs
from benchmarks.study.sick_triples import SICK_FILE, triples, write_triples
from pipelines.reading.columns import TRIPLES
from pipelines.reading.readers import read
from pipelines.reading.sources import plan

E, C, N = "ENTAILMENT", "CONTRADICTION", "NEUTRAL"


def written(senteval: Path, pairs) -> Path:
    """A file of SICK with these (A, B, label)."""
    path = senteval / SICK_FILE
    path.parent.mkdir(parents=True)
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
    lines = [f"{n}\t{a}\t{b}\t3.0\t{label}\r\n" for n, (a, b, label) in enumerate(pairs)]
    path.write_text(header + "".join(lines), encoding="utf-8")
    return path


def reference(pairs):
    """The triples, one sentence at a time over all pairs."""
    made = []
    for s in dict.fromkeys(sentence for a, b, _ in pairs for sentence in (a, b)):
        entailed, against = [], []
        for a, b, label in pairs:
            if label == E and a == s and b not in entailed:
                entailed.append(b)
            for one, other in ((a, b), (b, a)):
                if label == C and one == s and other not in against:
                    against.append(other)
        if against:
            made += [(s, e, against[i % len(against)]) for i, e in enumerate(entailed)]
    return made


@pytest.mark.parametrize("seed", range(8))
def test_triples_are_those_of_the_rule(tmp_path, seed):
    draw = random.Random(seed)
    names = [f"sentence {n}" for n in range(12)]
    pairs = [(*draw.sample(names, 2), draw.choice((E, E, E, C, N))) for _ in range(60)]
    found = list(triples(written(tmp_path, pairs)))
    assert found == reference(pairs)
    assert len(found) > 10


def test_sentences_that_differ_in_white_space_are_one(tmp_path):
    pairs = [("a  b", "e", E), (" a b ", "e ", E), ("c", "a b", C)]
    assert list(triples(written(tmp_path, pairs))) == [("a b", "e", "c")]


def test_prepare_reads_the_triples_in_their_order(tmp_path):
    """A quote in a sentence, also an unclosed one, and a comma stay what they are."""
    pairs = [("a, b", '"e', E), ("a, b", 'the "f"', E), ("a, b", "c's", C), ("z", "y", C)]
    written(tmp_path, [*pairs, ("z", "x", E)])
    write_triples(tmp_path, tmp_path / "new" / "triples.csv")
    made = plan([str(tmp_path / "new" / "triples.csv")], TRIPLES[0], paired_columns=TRIPLES[1:])
    (piece,) = read(made.shards[0], made)
    assert [*zip(piece.texts, *piece.paired_texts, strict=True)] == [
        ("a, b", '"e', "c's"),
        ("a, b", 'the "f"', "c's"),
        ("z", "x", "y"),
    ]


def test_the_study_writes_them_before_they_are_prepared(tmp_path, monkeypatch):
    written(tmp_path, [("a", "b", E), ("c", "a", C)])
    monkeypatch.setattr(runs, "commands", lambda study: [])
    study = runs.Study(tmp_path / "out", "own/model", tmp_path, Path("lines.txt"), ())
    runs.run(study)
    assert (tmp_path / "out" / "triples.csv").read_text() == "sent0,sent1,hard_neg\na,b,c\n"


def test_the_real_file_gives_251_triples(shared):
    found = list(triples(shared / "data" / "senteval" / SICK_FILE))
    assert len(found) == len(set(found)) == 251
    assert len({sentence for sentence, _, _ in found}) == 200
