"""What the dev pairs are called, and that a run is known by the pairs, not by their name."""

from __future__ import annotations

import hashlib
import json

import pytest

from cotbert_core.errors import UserError
from cotbert_core.settings import TrainSettings, flatten
from pipelines.storage.output_folder import changed_settings, check_output, open_output
from pipelines.training.dev_sets import (
    BUILT_IN_PAIRS,
    dev_digest,
    dev_name,
    graded_sets,
    with_pairs,
)

PAIRS = "score\tsentence1\tsentence2\n4\tOne.\tUno.\n1\tTwo.\tOil.\n"
SICK = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\n1\tOne.\tUno.\t4\n2\tTwo.\tOil.\t2\n"
STSB = "0\ta\tb\tc\t4.5\tOne.\tUno.\n0\ta\tb\tc\t1\tTwo.\tOil.\n"


@pytest.fixture
def senteval(tmp_path):
    """The dev files of STS-B and SICK-R, two pairs each."""
    for name, text in (("STS/STSBenchmark/sts-dev.csv", STSB), ("SICK/SICK_trial.txt", SICK)):
        file = tmp_path / "senteval" / name
        file.parent.mkdir(parents=True)
        file.write_text(text)
    return tmp_path / "senteval"


def test_dev_pairs_are_called_what_they_are(senteval, tmp_path):
    mine, both = tmp_path / "mine.tsv", TrainSettings(dev="sts-b+sick-r")
    mine.write_text(PAIRS)
    for name, dev in {
        "built-in pairs": graded_sets(TrainSettings(), None, None),
        "mine.tsv": graded_sets(both, None, mine),
        "STS-B dev": graded_sets(TrainSettings(), senteval, None),
        "STS-B + SICK-R dev": graded_sets(both, senteval, None),
    }.items():
        assert dev_name(dev) == name
        assert with_pairs(flatten(both), dev) == flatten(both) | {"dev": name}


def test_the_name_of_the_pairs_is_no_part_of_their_digest(senteval, tmp_path):
    mine = tmp_path / "mine.tsv"
    mine.write_bytes(BUILT_IN_PAIRS.read_bytes())
    built_in, copy = (graded_sets(TrainSettings(), None, file) for file in (None, mine))
    assert dev_digest(built_in) == dev_digest(copy) == slow_digest("pairs", built_in)
    stsb = graded_sets(TrainSettings(), senteval, None)
    assert dev_digest(stsb) == slow_digest("STS-B", stsb) != slow_digest("pairs", stsb)


def slow_digest(name, dev):
    """As runs recorded it when own and built-in pairs were both called `pairs`."""
    (pairs,) = dev.values()
    text = json.dumps([[name, pairs.left, pairs.right, pairs.gold.tolist()]])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def test_a_run_that_called_its_pairs_otherwise_is_continued(tmp_path):
    settings = flatten(TrainSettings())
    old = {"settings": settings, "dev_digest": "d"}
    new = {"settings": settings | {"dev": "built-in pairs"}, "dev_digest": "d"}
    folder = open_output(tmp_path / "run", "run", old)
    assert old["settings"]["dev"] == "sts-b"
    assert check_output(folder, "run", new) == folder
    seed = {"settings": new["settings"] | {"seed": 3}}
    for change, named in (
        ({"dev_digest": "other"}, "dev, the dev pairs or labels"),
        (seed, "seed"),
    ):
        with pytest.raises(UserError, match=rf"was started with other settings \({named}\)"):
            check_output(folder, "run", {**new, **change})
    (tmp_path / "settings.json").write_text(json.dumps({"settings": {"dev": 2}}))
    changed = changed_settings(tmp_path / "settings.json", {"settings": {"dev": 1}})
    assert changed == ["settings.dev"]
