"""Evaluation: geometry against double loops, the STS protocol against scoring by hand."""

from __future__ import annotations

import csv
import math
import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from cotbert_core.errors import UserError
from cotbert_core.evaluation import alignment, anisotropy, evaluate_sts, geometry, uniformity
from cotbert_core.evaluation.pairs import Pairs, read_pairs, score_pairs
from cotbert_core.evaluation.sts import STS_TASKS, load_dev, missing_tasks, task_name

SUBSETS = {
    "STS12": ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "STS13": ("FNWN", "headlines", "OnWN"),
    "STS16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}
SICK_HEADER = "pair_ID\trelatedness_score\tsentence_A\tentailment_judgment\tsentence_B"


def encode(sentences):
    """Vectors that depend on the text alone; their products are exact, so that equal cosines are
    equal to the last bit."""
    seeds = [zlib.crc32(s.encode()) for s in sentences]
    rows = [np.random.default_rng(s).integers(-9, 12, 6) for s in seeds]
    return np.array(rows, float).reshape(-1, 6)


def cosine(u, v):
    return float(u @ v) / (math.sqrt(float(u @ u)) * math.sqrt(float(v @ v)))


def by_hand(pairs):
    """Spearman x 100 of (left, right, gold) triples: Pearson's r of the ranks, the mean rank where
    some are equal. Without this package and without scipy."""
    vectors = [encode([" ".join(a.split()), " ".join(b.split())]) for a, b, _ in pairs]
    sides = []
    for values in ([cosine(*pair) for pair in vectors], [float(gold) for *_, gold in pairs]):
        values = np.array(values)
        below, equal = values[:, None] > values, values[:, None] == values
        ranks = below.sum(axis=1) + (equal.sum(axis=1) + 1) / 2
        sides.append(ranks - ranks.mean())
    x, y = sides
    return 100 * np.sum(x * y) / np.sqrt(np.sum(x * x) * np.sum(y * y))


def made_pairs(name, count):
    """Graded pairs with white space to fold, sentences that recur, and equal grades."""
    random = np.random.default_rng(zlib.crc32(name.encode()))
    words = [f"{name}{i % 5}" for i in range(count)]
    return [
        (f" {w}  one", f"{w}\u00a0two {i} ", float(random.integers(0, 6)))
        for i, w in enumerate(words)
    ]


@pytest.fixture(scope="module")
def senteval(tmp_path_factory):
    """A SentEval folder of made pairs, and those pairs by task and subset."""
    folder = tmp_path_factory.mktemp("senteval")
    truth = {}
    for task, names in SUBSETS.items():
        home = folder / "STS" / f"{task}-en-test"
        home.mkdir(parents=True)
        truth[task] = {n: made_pairs(task + n, 6 + 3 * i) for i, n in enumerate(names)}
        for name, pairs in truth[task].items():
            lines = [f"{a}\t{b}\tsource" for a, b, _ in pairs]
            golds = [str(gold) for *_, gold in pairs]
            if task == "STS16":
                lines, golds = ["left\tout", *lines, "left\tout too"], ["", *golds, ""]
            write(home / f"STS.input.{name}.txt", lines)
            write(home / f"STS.gs.{name}.txt", golds)
    write(folder / "STS/STS13-en-test/STS.gs.SMT.txt", ["5.0"])
    truth["STS-B"] = {"all": made_pairs("test", 20)}
    stsb = folder / "STS/STSBenchmark"
    for split in ("dev", "test"):
        rows = [f"g\tf\ty\t{i}\t{s}\t{a}\t{b}" for i, (a, b, s) in enumerate(made_pairs(split, 20))]
        write(stsb / f"sts-{split}.csv", rows)
    truth["SICK-R"] = {"all": made_pairs("sick", 15)}
    rows = [f"{i}\t{s}\t{a}\tX\t{b}" for i, (a, b, s) in enumerate(truth["SICK-R"]["all"])]
    write(folder / "SICK/SICK_test_annotated.txt", [SICK_HEADER, *rows])
    return folder, truth


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def vectors():
    made = np.random.default_rng(0).normal(0.5, 1, (13, 4))
    return made * np.arange(1, 14)[:, None]


def unit(row):
    return row / math.sqrt(float(row @ row))


def test_alignment_equals_the_loop(vectors):
    left, right = vectors[:6], vectors[6:12]
    gaps = [unit(u) - unit(v) for u, v in zip(left, right, strict=True)]
    assert alignment(left, right) == pytest.approx(sum(float(g @ g) for g in gaps) / 6, abs=1e-12)
    assert alignment(left, 7 * left) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("block", [1, 4, 13, 1024])
def test_uniformity_equals_the_double_loop(vectors, block, monkeypatch):
    monkeypatch.setattr(geometry, "BLOCK", block)
    terms = []
    for i, u in enumerate(vectors):
        for j, v in enumerate(vectors):
            gap = unit(u) - unit(v)
            terms += [math.exp(-2 * float(gap @ gap))] if i != j else []
    assert uniformity(vectors) == pytest.approx(math.log(sum(terms) / len(terms)), abs=1e-12)


@pytest.mark.filterwarnings("error")
def test_a_single_vector_has_no_geometry(vectors):
    assert np.isnan([uniformity(vectors[:1]), anisotropy(vectors[:1])]).all()


def test_vectors_that_are_all_zero_are_not_apart():
    assert uniformity(np.zeros((3, 4))) == alignment(np.zeros((3, 4)), np.zeros((3, 4))) == 0


@pytest.mark.parametrize("sign", [1, -1])
def test_anisotropy_equals_the_double_loop(vectors, sign):
    made = vectors.copy()
    made[::2] *= sign
    n = len(made)
    total = sum(cosine(made[i], made[j]) for i in range(n) for j in range(n) if i != j)
    assert anisotropy(made) == pytest.approx(abs(total) / (n * n - n), abs=1e-12)


def test_score_pairs_by_hand():
    triples = made_pairs("score", 30)
    folded = [(" ".join(a.split()), " ".join(b.split()), g) for a, b, g in triples]
    left, right, gold = (list(side) for side in zip(*folded, strict=True))
    scores = score_pairs(encode, Pairs(left, right, np.array(gold)))
    assert scores.spearman == pytest.approx(by_hand(folded), abs=1e-9)
    expected = [cosine(*encode([a, b])) for a, b, _ in folded]
    np.testing.assert_allclose(scores.cosine, expected, atol=1e-12)
    alike = [(a, b) for a, b, g in folded if g > 4]
    assert 0 < len(alike) < 30, "premise"
    gaps = [unit(u) - unit(v) for u, v in (encode(pair) for pair in alike)]
    assert scores.alignment == pytest.approx(np.mean([g @ g for g in gaps]), abs=1e-12)
    distinct = encode(sorted({*left, *right}))
    assert len(distinct) < 60, "premise: sentences recur"
    assert scores.uniformity == pytest.approx(uniformity(distinct), abs=1e-12)


def test_pairs_of_equal_sentences_tie():
    rng = np.random.default_rng(0)
    vector_of = {name: rng.normal(size=48).astype(np.float32) for name in "abcdefghij"}
    equal = Pairs([*"abcdefgh", "i"], [*"abcdefgh", "j"], np.array([5, 4, 5, 4, 5, 4, 5, 4, 0.0]))
    scores = score_pairs(lambda texts: np.stack([vector_of[text] for text in texts]), equal)
    expected = spearmanr([1] * 8 + [0], equal.gold).statistic
    assert scores.spearman == pytest.approx(100 * expected)


def test_sts_scores_by_hand(senteval):
    folder, truth = senteval
    found = evaluate_sts(encode, folder, list(truth))
    assert list(found) == list(truth)
    for task, subsets in truth.items():
        each = {name: by_hand(pairs) for name, pairs in subsets.items()}
        sizes = {name: len(pairs) for name, pairs in subsets.items()}
        weighted = sum(each[n] * sizes[n] for n in each) / sum(sizes.values())
        together = [pair for pairs in subsets.values() for pair in pairs]
        assert found[task]["pairs"] == len(together)
        assert found[task]["spearman"] == pytest.approx(by_hand(together), abs=1e-9)
        assert found[task]["mean"] == pytest.approx(sum(each.values()) / len(each), abs=1e-9)
        assert found[task]["wmean"] == pytest.approx(weighted, abs=1e-9)
        assert found[task]["subsets"] == pytest.approx(each if len(each) > 1 else {}, abs=1e-9)
    for year in (found[task] for task in SUBSETS):
        assert abs(year["spearman"] - year["mean"]) > 1e-3, "premise: protocols differ"
        assert abs(year["wmean"] - year["mean"]) > 1e-3, "premise: protocols differ"


def test_every_distinct_sentence_is_encoded_once(senteval):
    folder, truth = senteval
    seen = []
    evaluate_sts(lambda texts: seen.extend(texts) or encode(texts), folder, ["STS-B", "STS12"])
    pairs = [p for t in ("STS-B", "STS12") for subset in truth[t].values() for p in subset]
    sides = [" ".join(side.split()) for left, right, _ in pairs for side in (left, right)]
    assert len(set(sides)) < len(sides), "premise: sentences recur"
    assert sorted(seen) == sorted(set(sides))


def test_an_encode_function_may_return_lists_or_a_tensor(senteval):
    folder, _ = senteval
    scores = evaluate_sts(encode, folder, ["STS-B"])
    for made in (np.ndarray.tolist, list, torch.from_numpy):
        assert evaluate_sts(lambda texts, made=made: made(encode(texts)), folder, "STS-B") == scores
    for wrong in (lambda rows: np.repeat(rows, 2, axis=0), lambda rows: rows[:, 0]):
        with pytest.raises(UserError, match="sentences: let it give a vector for each"):
            evaluate_sts(lambda texts, wrong=wrong: wrong(encode(texts)), folder, ["STS-B"])


def test_load_dev_reads_the_dev_file(senteval):
    dev = load_dev(senteval[0])
    expected = made_pairs("dev", 20)
    assert dev.gold.tolist() == [gold for *_, gold in expected]
    assert dev.right == [" ".join(right.split()) for _, right, _ in expected]


def test_task_names_however_written():
    names = ("sts12", "STSB", "sts-b", "STSBenchmark", "sick-r", "SICKR", "SICKRelatedness")
    assert [*map(task_name, names)] == ["STS12", *["STS-B"] * 3, *["SICK-R"] * 3]


def test_what_is_missing_is_named(senteval, tmp_path):
    folder, truth = senteval
    assert missing_tasks(folder, list(STS_TASKS)) == ["STS14", "STS15"]
    assert set(STS_TASKS) == {*truth, "STS14", "STS15"}
    with pytest.raises(UserError, match=r"STS14-en-test/STS.input.deft-forum.txt' does not exist"):
        evaluate_sts(encode, folder, ["STS14"])
    with pytest.raises(UserError, match="unknown task 'STS17': choose one of SICK-R, STS-B, STS12"):
        evaluate_sts(encode, folder, ["STS17"])
    with pytest.raises(UserError, match=r"sts-dev.csv' does not exist"):
        load_dev(tmp_path)
    with pytest.raises(UserError, match=r"'nowhere\.tsv' does not exist"):
        read_pairs("nowhere.tsv")


@pytest.mark.parametrize(
    ("name", "lines", "fault"),
    [
        ("STS/STS13-en-test/STS.gs.FNWN.txt", ["1.0"], "6 lines and STS.gs.FNWN.txt 1"),
        ("STS/STS13-en-test/STS.input.FNWN.txt", ["a", *["a\tb"] * 5], "two tab-separated sent"),
        (
            "STS/STS13-en-test/STS.gs.OnWN.txt",
            ["", " ", "1", *["high"] * 9],
            "STS.gs.OnWN.txt, line 4: score is 'high': give a number",
        ),
        ("STS/STS13-en-test/STS.gs.OnWN.txt", ["nan"] * 12, "line 1: score is 'nan': give a num"),
        ("STS/STSBenchmark/sts-test.csv", ["g\tf\ty\t0\t3\ta\tb"] * 2, "2 pairs with 1 different"),
        ("SICK/SICK_test_annotated.txt", [SICK_HEADER, "1\ta\tb\tX\tY"], "annotated.txt, line 2:"),
        ("STS/STSBenchmark/sts-test.csv", ["g\tf\ty\t0\t1\ta"], "a line with too few columns"),
        ("SICK/SICK_test_annotated.txt", [SICK_HEADER, "1\t3\ta\tX"], "too few columns"),
        ("SICK/SICK_test_annotated.txt", ["pair_ID\tsentence_A"], "no column 'sentence_B'"),
    ],
)
def test_files_that_are_not_sentevals_are_refused(senteval, tmp_path, name, lines, fault):
    folder = Path(shutil.copytree(senteval[0], tmp_path / "copy"))
    write(folder / name, lines)
    with pytest.raises(UserError, match=fault):
        evaluate_sts(encode, folder, ["STS13", "STS-B", "SICK-R"])


def test_a_file_that_is_not_utf8_is_read(senteval, tmp_path):
    folder = Path(shutil.copytree(senteval[0], tmp_path / "copy"))
    path = folder / "STS/STSBenchmark/sts-dev.csv"
    lines = ["g\tf\ty\t0\t1\tcaf\u00e9\tb", "g\tf\ty\t1\t2\tc\td"]
    path.write_bytes("\n".join(lines).encode("iso-8859-1"))
    assert load_dev(folder).left == ["caf\u00e9", "c"]


def test_read_pairs_folds_white_space_and_keeps_one_split(tmp_path):
    rows = ['dev\t1.5\ta  "b"\tc', "test\t2\td\te", "dev\t3\tf\tg\u00a0h"]
    path = write(tmp_path / "pairs.tsv", ["split\tscore\tsentence1\tsentence2", *rows])
    pairs = read_pairs(path, "dev")
    assert (pairs.left, pairs.right) == (['a "b"', "f"], ["c", "g h"])
    assert pairs.gold.tolist() == [1.5, 3.0]
    assert len(read_pairs(path)) == 3
    plain = write(
        tmp_path / "plain.tsv", ["\ufeffscore\tsentence1\tsentence2", "1\ta\tb", "2\tc\td"]
    )
    assert len(read_pairs(plain, "dev")) == 2


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        (["score\tsentence1\ttext", "1\ta\tb"], "no column 'sentence2'"),
        (["score\tsentence1\tsentence2", "1\ta\tb", "x\tc\td"], "line 3: score is 'x'"),
        (["score\tsentence1\tsentence2", "1\ta\tb", "nan\tc\td"], "line 3: score is 'nan'"),
        (["score\tsentence1\tsentence2", "1\ta\tb", "inf\tc\td"], "line 3: score is 'inf'"),
        (["score\tsentence1\tsentence2", "1\ta\tb", "1_0\tc\td"], "line 3: score is '1_0'"),
        (["score\tsentence1\tsentence2", "1\ta\tb\tc"], "line 2: it has 1 more column than"),
        (["score\tsentence1\tsentence2\tscore", "1\ta\tb\t2"], "has the column 'score' twice"),
        (["score\tsentence1\tsentence2\tsplit", "1\ta\tb"], "line 2: it has no split"),
        (["score\tsentence1\tsentence2", "1\ta\t  "], "line 2: a sentence is empty"),
        (["score\tsentence1\tsentence2", "1\ta"], "line 2: a sentence is empty"),
        (["score\tsentence1\tsentence2", "1\ta\tb", "1\tc\td"], "2 pairs with 1 different"),
        (["score\tsentence1\tsentence2"], "0 pairs"),
        (["score\tsentence1\tsentence2\tsplit"], "0 pairs"),
        (
            ["score\tsentence1\tsentence2\tsplit", "1\ta\tb\ttest", "2\ta\tb\ttrain"],
            "has no rows of split 'dev', only of 'test', 'train'",
        ),
        (["score\tsentence1\tsentence2", "1\ta\tb", f"2\t{'a ' * 70_000}\td"], "line 3: it cannot"),
        ([], "no column 'score'"),
    ],
)
def test_a_bad_pairs_file_is_reported(tmp_path, lines, fault):
    csv.field_size_limit(131_072)  # Python's own, which readers of this process may have raised
    with pytest.raises(UserError, match=fault):
        read_pairs(write(tmp_path / "pairs.tsv", lines), "dev")


def test_a_pairs_file_in_another_encoding_and_a_folder_are_reported(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_bytes("score\tsentence1\tsentence2\n1\tcafé\tb\n".encode("latin-1"))
    fault = r"pairs file '.*' is not UTF-8 \(byte 31 is 0xe9\): save it as UTF-8"
    with pytest.raises(UserError, match=fault):
        read_pairs(path)
    with pytest.raises(UserError, match="is not a file: give a tab-separated file"):
        read_pairs(tmp_path)


def test_vectors_that_are_not_finite_have_no_score():
    pairs = Pairs(["a", "b", "c"], ["d", "e", "f"], np.array([1.0, 2.0, 3.0]))
    with pytest.raises(UserError, match="not finite, so its training has diverged"):
        score_pairs(lambda texts: np.where(np.arange(len(texts)) == 3, np.nan, 1.0)[:, None], pairs)


def test_real_tasks_have_their_numbers_of_pairs(shared):
    folder = shared / "data" / "senteval"
    sizes = {"STS-B": 1379, "SICK-R": 4927, "STS12": 3108, "STS13": 1500}
    found = evaluate_sts(encode, folder, list(sizes))
    assert {task: scores["pairs"] for task, scores in found.items()} == sizes
    assert len(load_dev(folder)) == 1500
