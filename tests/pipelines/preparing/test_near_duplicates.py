"""Near duplicates by MinHash against the Jaccard similarity of all pairs."""

from __future__ import annotations

import random

import numpy as np
import pytest

from cotbert_core.errors import UserError
from pipelines.preparing import buckets, near_duplicates
from pipelines.preparing.duplicates import mark_first, read_flags
from pipelines.preparing.near_duplicates import NearDuplicates, band_rows, estimate, signatures
from pipelines.preparing.options import PrepareOptions
from pipelines.preparing.shard_tasks import row_id

WORDS = [f"{a}{b}" for a in ("gar", "vol", "mit", "pesk", "tron", "ulf") for b in
         ("ana", "exo", "ix", "oberts", "umming", "y", "aq", "ed")]  # fmt: skip


def grams(text):
    padded = text.casefold() + "\0" * 4
    return {padded[n : n + 5] for n in range(len(text.casefold()))}


def jaccard(one, other):
    one, other = grams(one), grams(other)
    return len(one & other) / len(one | other)


def sentence(draw):
    return " ".join(draw.choices(WORDS, k=draw.randrange(8, 25)))


def test_estimates_are_near_the_similarity_of_the_sets():
    draw = random.Random(0)
    pairs = [("a", "a"), ("a", "b"), ("Éa 漢字", "éA 漢字"), ("x" * 9, "x" * 5), ("ab", "abc")]
    for number in range(60):
        words = sentence(draw).split()
        other = [draw.choice(WORDS) if draw.random() < number / 60 else word for word in words]
        pairs.append((" ".join(words), " ".join(other)))
    one, other = (signatures(texts, 5)["minima"] for texts in zip(*pairs, strict=True))
    exact = np.array([jaccard(*pair) for pair in pairs])
    wrong = estimate(one, other) - exact
    assert np.abs(wrong).max() < 0.16  # four times the standard error of 128 hashes at most
    assert np.abs(wrong.mean()) < 0.02
    assert exact.std() > 0.2


def test_signatures_do_not_depend_on_what_is_hashed_together(monkeypatch):
    draw = random.Random(1)
    texts = ["x", "?!", *(sentence(draw) for _ in range(20)), "long " * 5000]
    whole = signatures(texts, 4)
    monkeypatch.setattr(near_duplicates, "TOGETHER", 3)
    assert np.array_equal(whole, signatures(texts, 4))
    assert np.array_equal(whole[5:6], signatures(texts[5:6], 4))
    assert len(signatures([], 4)) == 0


@pytest.mark.parametrize(("similarity", "rows"), [(0.5, 3), (0.8, 6), (0.9, 10), (0.99, 32)])
def test_a_pair_at_the_threshold_is_a_candidate(similarity, rows):
    assert band_rows(similarity) == rows
    assert 1 - (1 - similarity**rows) ** (128 // rows) >= 0.99


def corpus(draw):
    """Clusters of sentences of which one word differs, and sentences alone."""
    texts = []
    for _ in range(40):
        words = sentence(draw).split()
        texts.append(" ".join(words))
        for _ in range(draw.choice([0, 0, 1, 3])):
            changed = list(words)
            changed[draw.randrange(len(words))] += "s"
            texts.append(" ".join(changed))
    draw.shuffle(texts)
    return list(dict.fromkeys(texts)) + texts[:5]


def by_all_pairs(texts, similarity):
    """The texts that stay: of each cluster of pairs at least so similar the smallest id."""
    distinct = list(dict.fromkeys(texts))
    cluster = {text: {text} for text in distinct}
    for n, one in enumerate(distinct):
        for other in distinct[:n]:
            if jaccard(one, other) >= similarity and cluster[one] is not cluster[other]:
                joined = cluster[one] | cluster[other]
                cluster |= dict.fromkeys(joined, joined)
    return {min(members, key=row_id) for members in cluster.values()}


def search(folder, texts, similarity, shards):
    """(texts that stay, how many were dropped) by the search on files."""
    folder.mkdir()
    parts = np.array_split(np.arange(len(texts)), shards)
    ids = [folder / f"{n}.ids" for n in range(shards)]
    near = [folder / f"{n}.near" for n in range(shards)]
    for rows, ids_file, near_file in zip(parts, ids, near, strict=True):
        some = [texts[n] for n in rows]
        np.array([row_id(t) for t in some], np.int64).tofile(ids_file)
        signatures(some, band_rows(similarity)).tofile(near_file)
    mark_first(ids, folder / "keep", folder)
    dropped = NearDuplicates(ids, near, folder / "keep", similarity).drop(folder)
    stays = read_flags(folder / "keep", 0, len(texts))
    assert not list(folder.glob("records-*"))
    return [t for t, k in zip(texts, stays, strict=True) if k], dropped


def test_clusters_are_those_of_all_pairs(tmp_path, monkeypatch):
    draw = random.Random(2)
    texts = corpus(draw)
    distinct = list(dict.fromkeys(texts))
    values = [jaccard(a, b) for n, a in enumerate(distinct) for b in distinct[:n]]
    similarity = 0.55
    assert not [v for v in values if 0.42 < v < 0.68], "a pair is near the threshold"
    expected = by_all_pairs(texts, similarity)
    assert len(expected) < len(distinct) - 20
    found, dropped = search(tmp_path / "one", texts, similarity, 1)
    assert sorted(found) == sorted(expected)
    assert dropped == len(distinct) - len(expected)
    # In other shards, in many buckets, in another order: the same rows.
    monkeypatch.setattr(buckets, "BUCKET_RECORDS", 20)
    assert search(tmp_path / "two", texts, similarity, 7) == (found, dropped)
    assert sorted(search(tmp_path / "three", texts[::-1], similarity, 3)[0]) == sorted(found)

    alone = [sentence(draw) for _ in range(50)]
    assert search(tmp_path / "four", alone, 0.8, 2) == (alone, 0)


def test_a_row_is_also_compared_with_the_one_before_it_in_a_band(tmp_path):
    """The smallest id of the only band in which the others meet is not near either of them."""
    bands = 128 // band_rows(0.8)
    rows = np.zeros(3, near_duplicates.row_type(band_rows(0.8)))
    rows["minima"][1:] = np.arange(1, 129)
    rows["bands"] = np.arange(3 * bands).reshape(3, bands)
    rows["bands"][:, 0] = 7
    np.arange(3, dtype=np.int64).tofile(tmp_path / "ids")
    rows.tofile(tmp_path / "near")
    np.ones(3, np.uint8).tofile(tmp_path / "keep")
    files = [tmp_path / "ids"], [tmp_path / "near"], tmp_path / "keep"
    assert NearDuplicates(*files, 0.8).drop(tmp_path) == 1
    assert read_flags(tmp_path / "keep", 0, 3).tolist() == [True, True, False]


def test_a_similarity_out_of_range_is_reported():
    for similarity in (0, -1, 1, 1.5, 0.1):
        message = r"near_duplicates is .*: give a similarity from 0\.3 to 0\.99"
        with pytest.raises(UserError, match=message):
            PrepareOptions(("a.txt",), "e", near_duplicates=similarity)
