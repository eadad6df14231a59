"""Transfer tasks: files of all seven layouts, and the protocols against scikit-learn's loops."""

from __future__ import annotations

import zlib
from functools import cache

import numpy as np
import pytest

from cotbert_core.errors import UserError
from cotbert_core.evaluation import transfer
from cotbert_core.evaluation.transfer_data import (
    TRANSFER_TASKS,
    TREC_CLASSES,
    missing_transfer_tasks,
    transfer_task_name,
)

SIZE = 8
NESTED = {
    "MR": ("MR/rt-polarity.pos", "MR/rt-polarity.neg"),
    "CR": ("CR/custrev.pos", "CR/custrev.neg"),
    "SUBJ": ("SUBJ/subj.objective", "SUBJ/subj.subjective"),
    "MPQA": ("MPQA/mpqa.pos", "MPQA/mpqa.neg"),
}


def encode(sentences, size=SIZE):
    """The sum of the words' vectors, which depend on the words alone."""
    rows = [np.sum([vector(word, size) for word in s.split()], axis=0) for s in sentences]
    return np.array(rows, np.float32)


@cache
def vector(word, size):
    return np.random.default_rng(zlib.crc32(word.encode())).normal(size=size)


def sentence(draw, label):
    """Words of the class among words of none: some are classified correctly, some not."""
    kinds = draw.choice([label, 7, 8, 9], size=draw.integers(2, 7), p=[0.25, 0.25, 0.25, 0.25])
    return " ".join(f"w{kind}.{draw.integers(4)}" for kind in kinds)


def examples(seed, count, classes=2):
    """`count` (sentences, label) with equal shares of the classes."""
    draw = np.random.default_rng(seed)
    return [((sentence(draw, n % classes),), n % classes) for n in range(count)]


def paraphrases(seed, count):
    """((left, right), label): those of label 1 share their words."""
    draw = np.random.default_rng(seed)
    made = []
    for n in range(count):
        left = sentence(draw, 0)
        right = f"{left} {sentence(draw, 1)}" if n % 3 else f"{sentence(draw, 0)} w9.0"
        made.append(((left, right), int(n % 3 > 0)))
    return made


def write(path, lines, encoding="utf-8", end="\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(f"{line}{end}" for line in lines).encode(encoding))


@pytest.fixture(scope="module")
def made():
    """Task -> part -> examples in the order of the files."""
    two = examples(2, 100)
    # As in files of a class each, the higher first.
    by_file = sorted(two, key=lambda example: -example[1])
    return {
        **{task: {"train": by_file} for task in NESTED},
        "SST2": {part: examples(n, 90) for n, part in enumerate(("train", "dev", "test"), 5)},
        "TREC": {part: examples(n, 120, 6) for n, part in enumerate(("train", "test"), 1)},
        "MRPC": {part: paraphrases(n, 120) for n, part in enumerate(("train", "test"), 10)},
    }


@pytest.fixture(scope="module")
def senteval(tmp_path_factory, made):
    """A SentEval folder of the made examples, all seven tasks."""
    folder = tmp_path_factory.mktemp("senteval")
    for task, paths in NESTED.items():
        for label, path in zip((1, 0), paths, strict=True):
            lines = [text for (text,), own in made[task]["train"] if own == label]
            write(folder / path, [f" {line}  " for line in lines])
    for part, rows in made["SST2"].items():
        lines = [f"{text} \t{label}" for (text,), label in rows]
        write(folder / f"SST/binary/sentiment-{part}", lines)
    for part, name in (("train", "train_5500"), ("test", "TREC_10")):
        rows = [f"{TREC_CLASSES[label]}:fine {text}" for (text,), label in made["TREC"][part]]
        write(folder / f"TREC/{name}.label", rows, "iso-8859-1")
        rows = [f"{label}\t1\t2\t{a}\t{b}" for (a, b), label in made["MRPC"][part]]
        header = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String"
        write(folder / f"MRPC/msr_paraphrase_{part}.txt", [header, *rows], end="\r\n")
    return folder


def in_order(rows):
    return sorted(rows, key=lambda e: (*(len(side.split()) for side in e[0]), e[1]))


def block(rows, size=SIZE):
    """Features and labels in float64, examples in SentEval's order."""
    rows = in_order(rows)
    texts = [texts for texts, _ in rows]
    sides = [encode(list(side), size).astype(float) for side in zip(*texts, strict=True)]
    x = sides[0] if len(sides) == 1 else np.hstack([abs(sides[0] - sides[1]), sides[0] * sides[1]])
    return x, np.array([label for _, label in rows])


def exact(c, x, y):
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=c, tol=1e-6, max_iter=10_000).fit(x, y)


def best(grid, x, y, folds=10, seed=1111):
    """The C with the best mean accuracy over the folds, and that accuracy."""
    from sklearn.model_selection import StratifiedKFold

    parts = list(StratifiedKFold(folds, shuffle=True, random_state=seed).split(x, y))
    means = [
        round(100 * np.mean([exact(c, x[a], y[a]).score(x[b], y[b]) for a, b in parts]), 2)
        for c in grid
    ]
    return grid[int(np.argmax(means))], max(means)


def evaluate_transfer(encode, folder, tasks, *seed):
    done = transfer.score_transfer(encode, transfer.load_transfer(folder, tasks), *seed)
    return {task: one.scores for task, one in done.items()}


@pytest.fixture(scope="module")
def encoded():
    """The texts of each call of the encoder."""
    return []


@pytest.fixture(scope="module")
def scores(senteval, encoded):
    assert transfer.FOLDS == 10
    read = transfer.load_transfer(senteval, ["trec", "SST-2", "MRPC", "TREC"])
    done = transfer.score_transfer(lambda texts: encoded.append(texts) or encode(texts), read)
    with pytest.MonkeyPatch.context() as patch:  # ten folds inside of ten take four times as long
        patch.setattr(transfer, "FOLDS", 5)
        done |= transfer.score_transfer(encode, transfer.load_transfer(senteval, ["CR"]))
    for one in done.values():  # single answers make the accuracy
        assert len(one.right) == one.scores["test"]
        assert 100 * one.right.mean() == pytest.approx(one.scores["accuracy"])
    return {task: one.scores for task, one in done.items()}


def test_every_layout_is_read_whole_and_in_order(senteval, made):
    assert list(made) == list(TRANSFER_TASKS)
    for task, parts in made.items():
        read = TRANSFER_TASKS[task].load(senteval)
        assert list(read) == list(parts)
        for name, rows in parts.items():
            texts = list(zip(*read[name].sides, strict=True))
            found = list(zip(texts, read[name].labels.tolist(), strict=True))
            assert found == in_order(rows), (task, name)


def test_nested_folds_equal_the_loop(made, scores):
    from sklearn.model_selection import StratifiedKFold

    # Of the first two folds all C are tried, of the others the one that was chosen.
    grid = [0.25, 0.5, 1, 2, 4, 8]
    assert [*transfer.GRID] == grid
    x, y = block(made["CR"]["train"])
    accuracy, dev, chosen, own = [], [], [], scores["CR"]
    folds = StratifiedKFold(5, shuffle=True, random_state=1111).split(x, y)
    for (a, b), found in zip(folds, own["regularisation"], strict=True):
        c, inner = best(grid if len(chosen) < 2 else [found], x[a], y[a], 5)
        accuracy.append(100 * exact(c, x[a], y[a]).score(x[b], y[b]))
        dev.append(inner)
        chosen.append(c)
    assert own["accuracy"] == pytest.approx(np.mean(accuracy), abs=0.5)
    assert own["dev_accuracy"] == pytest.approx(np.mean(dev), abs=0.1)
    assert chosen == own["regularisation"]
    assert len(set(chosen)) > 1
    assert 60 < own["accuracy"] < 95
    assert (own["train"], own["test"], own["unconverged"]) == (100, 100, 0)
    assert "f1" not in own


@pytest.mark.parametrize("task", ["TREC", "MRPC"])
def test_folds_of_the_training_part_equal_the_loop(made, scores, task):
    from sklearn.metrics import f1_score

    (x, y), (tx, ty) = (block(made[task][part]) for part in ("train", "test"))
    grid = [0.5, 1, 2, 4, 8, 16, 32]
    assert [*transfer.TRAIN_TEST_GRID] == grid
    c, dev = best(grid, x, y)
    predicted = exact(c, x, y).predict(tx)
    own = scores[task]
    assert own["regularisation"] == [c]
    assert own["dev_accuracy"] == pytest.approx(dev, abs=0.5)
    assert own["accuracy"] == pytest.approx(100 * np.mean(predicted == ty), abs=0.5)
    assert own["accuracy"] > 100 * max(np.bincount(ty)) / len(ty)
    assert (own["train"], own["test"]) == (len(y), len(ty))
    if task == "MRPC":
        assert own["f1"] == pytest.approx(100 * f1_score(ty, predicted), abs=0.5)


def test_sst_chooses_by_its_dev_part(made, scores):
    blocks = [block(made["SST2"][part]) for part in ("train", "dev", "test")]
    models = {c: exact(c, *blocks[0]) for c in (0.25, 0.5, 1, 2, 4, 8)}
    dev = {c: model.score(*blocks[1]) for c, model in models.items()}
    c = max(dev, key=dev.get)
    own = scores["SST2"]
    assert own["regularisation"] == [c]
    assert own["dev_accuracy"] == pytest.approx(100 * dev[c], abs=0.01)
    assert own["accuracy"] == pytest.approx(100 * models[c].score(*blocks[2]), abs=0.01)
    assert (own["train"], own["test"]) == (90, 90)


def test_the_seed_draws_the_folds(senteval, scores):
    other = evaluate_transfer(encode, senteval, ["TREC"], 5)["TREC"]
    assert other["dev_accuracy"] != scores["TREC"]["dev_accuracy"]


def test_every_distinct_sentence_is_encoded_once(made, scores, encoded):
    assert list(scores) == ["TREC", "SST2", "MRPC", "CR"]
    tasks = ("TREC", "SST2", "MRPC")
    texts = {s for t in tasks for rows in made[t].values() for e in rows for s in e[0]}
    (called,) = encoded
    assert len(called) == len(texts)
    assert set(called) == texts


def test_bytes_that_are_not_utf8_and_empty_lines(tmp_path):
    write(tmp_path / "MR/rt-polarity.pos", ["caf\u00e9 so\u0085 so", "", "good"], "iso-8859-1")
    write(tmp_path / "MR/rt-polarity.neg", ["\ufeffna\u00efve film"], "utf-8", "\r\n")
    part = TRANSFER_TASKS["MR"].load(tmp_path)["train"]
    assert part.sides == ([".", "good", "na\u00efve film", "caf\u00e9 so so"],)
    assert part.labels.tolist() == [1, 1, 0, 1]


def test_missing_and_unknown_tasks_are_named(senteval, tmp_path):
    assert missing_transfer_tasks(senteval, list(TRANSFER_TASKS)) == []
    write(tmp_path / "CR/custrev.pos", ["good"])
    assert missing_transfer_tasks(tmp_path, ["TREC", "CR"]) == ["TREC", "CR"]
    assert [transfer_task_name(n) for n in ("sst-2", "Trec", "MRPC")] == ["SST2", "TREC", "MRPC"]
    for task, fault in {
        "CR": r"lacks CR/custrev\.neg: add the task's files",
        "TREC": r"lacks TREC/train_5500\.label, TREC/TREC_10\.label: add",
        "SST5": "unknown transfer task 'SST5': choose one of CR, MPQA",
    }.items():
        with pytest.raises(UserError, match=fault):
            evaluate_transfer(encode, tmp_path, [task])


@pytest.mark.parametrize(
    ("task", "path", "lines", "message"),
    [
        ("SST2", "SST/binary/sentiment-dev", ["good\t1", "bad"], "dev, line 2: label is 'bad'"),
        ("SST2", "SST/binary/sentiment-dev", ["good\t2"], "line 1: label is '2': give one of 0, 1"),
        ("TREC", "TREC/TREC_10.label", ["NUM:x how", "Who was he ?"], "line 2: label is 'Who was"),
        ("MRPC", "MRPC/msr_paraphrase_test.txt", ["Q", "\t1\t2\ta\tb"], "line 2: label is ''"),
        ("MRPC", "MRPC/msr_paraphrase_test.txt", ["Q", "1\ta\tb"], "line 2 has 3 tab-separated"),
        ("CR", "CR/custrev.neg", ["", " "], "custrev.neg is empty: download the task again"),
        ("CR", "CR/custrev.neg", ["bad"] * 19, "CR: class number 0 has 19 training examples"),
        ("SST2", "SST/binary/sentiment-train", ["bad\t0"] * 40, "number 1 has 0 training examples"),
        (
            "TREC",
            "TREC/train_5500.label",
            [f"{name}:x how" for name in ("ABBR", "DESC", "ENTY", "HUM", "LOC")] * 20,
            "class number 5 has 0 training examples",
        ),
    ],
)
def test_a_broken_file_is_reported_by_its_line(senteval, tmp_path, task, path, lines, message):
    for name in TRANSFER_TASKS[task].paths:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((senteval / name).read_bytes())
    write(tmp_path / path, lines)
    with pytest.raises(UserError, match=message):
        evaluate_transfer(lambda _: pytest.fail("encoded"), tmp_path, [task])


def test_a_fit_that_is_stopped_early_is_counted(monkeypatch, senteval):
    monkeypatch.setattr(transfer, "MAX_STEPS", 2)
    # Six on the way, and the last.
    assert evaluate_transfer(encode, senteval, ["SST2"])["SST2"]["unconverged"] == 7


def test_real_tasks_have_their_numbers_of_examples(shared):
    folder = shared / "data" / "senteval"
    assert missing_transfer_tasks(folder, list(TRANSFER_TASKS)) == ["MR", "SUBJ"]
    tasks = {name: TRANSFER_TASKS[name] for name in ("CR", "MPQA", "SST2", "TREC", "MRPC")}
    sizes = [[len(part) for part in task.load(folder).values()] for task in tasks.values()]
    assert sizes == [[3775], [10606], [67349, 872, 1821], [5452, 500], [4076, 1725]]


def test_the_fits_use_one_thread(senteval, monkeypatch):
    threadpoolctl = pytest.importorskip("threadpoolctl")
    seen, fit = [], transfer.fit

    def watch(*arguments):
        seen.extend(pool["num_threads"] for pool in threadpoolctl.threadpool_info())
        return fit(*arguments)

    monkeypatch.setattr(transfer, "fit", watch)
    with threadpoolctl.threadpool_limits(2):
        evaluate_transfer(encode, senteval, ["SST2"])
    assert set(seen) == {1}
