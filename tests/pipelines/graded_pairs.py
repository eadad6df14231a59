"""Graded pairs of made sentences, and the files that hold them."""

from __future__ import annotations

import numpy as np

WORDS = ("man", "dog", "penguin", "woman", "stage", "field", "price", "oil", "song", "line")


def graded(seed, count=12):
    """(score, sentence1, sentence2): the more words are shared, the higher the score."""
    draw = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        left = draw.choice(WORDS, 5, replace=False)
        right = np.concatenate([left[: number % 6], draw.choice(WORDS, 5 - number % 6)])
        rows.append((float(number % 6), " ".join(left), " ".join(right)))
    return rows


def write_pairs(path, rows):
    """A file of one's own pairs; its path."""
    lines = [("score", "sentence1", "sentence2"), *rows]
    path.write_text("".join("\t".join(map(str, line)) + "\n" for line in lines))
    return path


def write_stsb(senteval, rows):
    """The test set of STS-B in a SentEval folder; the folder."""
    home = senteval / "STS" / "STSBenchmark"
    home.mkdir(parents=True)
    lines = [f"main\tx\t2015\t{n}\t{g}\t{a}\t{b}\n" for n, (g, a, b) in enumerate(rows)]
    (home / "sts-test.csv").write_text("".join(lines))
    return senteval
