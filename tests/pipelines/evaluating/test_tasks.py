"""Which tasks of a SentEval folder are scored, and their averages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cotbert_core.errors import UserError
from pipelines.evaluating.evaluation_tasks import GROUPS, Tasks, choose_tasks


def folder_with(tmp_path: Path, *names: str) -> Path:
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir() if path.suffix == "" else path.write_text("")
    return tmp_path


CR = ("CR/custrev.pos", "CR/custrev.neg")
STSB = ("STS/STSBenchmark/sts-test.csv",)


def test_groups_and_names_of_both_kinds_may_be_mixed(tmp_path):
    folder = folder_with(tmp_path, *STSB, "SICK/SICK_test_annotated.txt", *CR)
    chosen = choose_tasks(folder, "stsb, cr,SICK-R , STS-B", allow_missing=False)
    assert chosen == Tasks(folder, ("STS-B", "SICK-R"), ("CR",))
    assert len(GROUPS["sts"]) == len(GROUPS["transfer"]) == 7


def test_tasks_that_cannot_be_scored_are_named(tmp_path):
    dev_alone = folder_with(tmp_path / "dev", "STS/STSBenchmark/sts-dev.csv")
    folder = folder_with(tmp_path, *STSB, *CR)
    for place, names, message in (
        (folder, "MR", "has none of the tasks MR"),
        (folder, "SST", r"unknown task 'SST': choose one of CR, .*sts, transfer"),
        (tmp_path / "none", "sts", "does not exist"),
        (dev_alone, "sts-b", "has none of the tasks STS-B"),
    ):
        with pytest.raises(UserError, match=message):
            choose_tasks(place, names, allow_missing=True)


def test_a_faulty_transfer_file_is_reported_before_the_sts_sentences_are_encoded(tmp_path):
    folder = folder_with(tmp_path, *STSB, *CR)
    pairs = [f"main\tnews\t2017\t{n}\t{n}.0\ta man {n}\ta dog {n}" for n in range(3)]
    (folder / STSB[0]).write_text("\n".join(pairs))
    for name in CR:
        (folder / name).write_text("good\n" * 19)
    tasks = choose_tasks(folder, "stsb,cr", allow_missing=False)
    with pytest.raises(UserError, match="CR: class number 0 has 19 training examples"):
        tasks.scores(lambda _: pytest.fail("encoded"))


def letters(sentences):
    """Counts of letters: a poor encoder, but one that tells sentences apart."""
    return np.array([[s.count(c) for c in "abcdefghijklmnopqrstuvwxyz?"] for s in sentences], float)


def test_each_kind_has_its_own_average(shared):
    tasks = Tasks(shared / "data" / "senteval", ("STS-B", "SICK-R"), ("TREC",))
    result = tasks.scores(letters)
    both = [result["STS-B"]["spearman"], result["SICK-R"]["spearman"]]
    assert result["average"] == pytest.approx(np.mean(both))
    assert result["transfer_average"] == result["TREC"]["accuracy"]
    assert 30 < result["TREC"]["accuracy"] < 90
    sentences = tasks.sentences()
    assert len(sentences) == len(set(sentences)) > 10_000
    assert "average" not in Tasks(tasks.folder, transfer=("TREC",)).scores(letters)
