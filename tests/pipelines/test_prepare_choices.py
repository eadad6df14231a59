"""Which rows cotbert prepare leaves out on request: excluded ones and near duplicates."""

from __future__ import annotations

import json
import random

import pytest
from read_inputs import run_prepare

from cotbert_core.errors import UserError
from pipelines.preparing.shard_tasks import row_id
from pipelines.storage.corpus import Corpus

pytestmark = pytest.mark.usefixtures("without_ray")

EVALUATION = [
    ("A man is playing the guitar.", "Two dogs run across the field"),
    ("The price of oil rose", "Oil"),
    ("Nobody said this", "Nor this"),
]
CORPUS = [
    "a man is playing the guitar",
    "TWO dogs run, across the field!",
    "Two dogs run across the field",
    "Two dogs run across the green field",
    "  Oil  ",
    "oil prices",
    "Penguins swim",
]


@pytest.fixture
def files(tmp_path):
    """A corpus in two files and, as SentEval's, an evaluation set in a folder."""
    (tmp_path / "a.txt").write_text("\n".join(CORPUS[:4]))
    (tmp_path / "b.txt").write_text("\n".join(CORPUS[4:]))
    home = tmp_path / "STS12"
    home.mkdir()
    (home / "STS.input.x.txt").write_text("".join(f"{a}\t{b}\n" for a, b in EVALUATION))
    (home / "STS.gs.x.txt").write_text("4.5\n1\n0\n")
    return tmp_path


def test_planted_evaluation_sentences_are_kept_out_and_counted(files, made, bert_folder, capsys):
    words = ("--input", files / "a.txt", files / "b.txt", "--exclude", files / "STS12")
    assert run_prepare(files / "out", bert_folder, *words) == 0
    corpus = Corpus.open(files / "out")
    assert sorted(corpus.texts().values()) == sorted([CORPUS[3], CORPUS[5], CORPUS[6]])
    result = json.loads((files / "out" / "result.json").read_text())
    assert corpus.manifest["dropped"] == {"excluded": 4}
    assert result["dropped_excluded"] == 4
    assert corpus.manifest["exclude_hits"] == result["exclude_hits"] == 3
    assert corpus.manifest["source"]["exclude_sentences"] == 6
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["excluded", "4", "57.1", "%"] in printed
    everything = made(*words[1:3], name="all")
    assert len(everything) == 7
    assert "exclude_hits" not in everything.manifest


def test_a_row_is_excluded_by_its_paired_text(files, made):
    (files / "a.csv").write_text("text,other\nice,The price of OIL rose\nsea,oil prices\n")
    options = {"augmented_column": "other", "exclude": (str(files / "STS12"),)}
    corpus = made(files / "a.csv", on_invalid="fail", **options)
    assert list(corpus.texts().values()) == ["sea"]


def test_a_missing_file_of_exclusions_leaves_nothing(files, made):
    with pytest.raises(UserError, match=r"--exclude 'no\.txt' does not exist"):
        made(files / "a.txt", exclude=("no.txt",))
    assert not list(files.glob("corpus*"))


def test_one_of_near_duplicates_stays_whatever_the_order_of_files(tmp_path, made):
    draw = random.Random(0)
    groups = []
    for number in range(30):
        words = [f"{draw.choice('bcdfg')}{draw.randrange(10**6)}" for _ in range(15)]
        near = [*words[:-1], words[-1] + "s"]
        groups.append([" ".join(words), " ".join(near)] if number % 2 else [" ".join(words)])
    texts = [text for group in groups for text in group]
    names = [tmp_path / "a.txt", tmp_path / "b.txt"]
    names[0].write_text("\n".join(texts[20:]))
    names[1].write_text("\n".join(texts[:20] + texts[:3]))
    options = {"max_length": 64, "near_duplicates": 0.8}
    one, two = made(*names, name="one", **options), made(*names[::-1], name="two", **options)
    assert set(one.texts().values()) == {min(group, key=row_id) for group in groups}
    assert one.manifest["dropped"] == {"duplicate": 3, "near_duplicate": 15}
    assert one.digest == two.digest
    few = made(*names, name="few", sample=10, **options)
    assert sorted(few.texts()) == sorted(one.texts())[:10]
    assert few.manifest["sampled_out"] == 20
