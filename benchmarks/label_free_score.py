"""Measure whether the score without labels ranks encoders as labels do.

    python -m benchmarks.label_free_score CORPUS [MODEL...] [--senteval DIR] [--sentiment FILE]
        [--modules PACKAGE,...]

Each encoder is scored on the test queries of the corpus's held-out documents and by the given
labels: STS-B, STS12 and STS13 of a SentEval folder; the sentiment of reviews by SentEval's protocol
for MR (a linear classifier of frozen vectors, nested folds); how often the nearest neighbour of a
docstring is in the same file. The Spearman correlation of two rankings has a percentile interval
over resampled encoders and the p-value of a permutation test, exact for up to 8 encoders. MODELs
are scored in addition to the untouched readouts, or with --only instead of them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import tempfile
from itertools import permutations
from pathlib import Path

import numpy as np
from scipy.stats import rankdata, spearmanr

from cotbert_core.encoder.locations import MINILM
from cotbert_core.errors import UserError
from cotbert_core.evaluation.bootstrap import interval, resampled_mean, resampled_spearman
from cotbert_core.evaluation.held_out import HeldOut, score_held_out
from cotbert_core.evaluation.labelled import Labelled, same_label
from cotbert_core.evaluation.pairs import Encode, EncodeFunctions
from cotbert_core.evaluation.transfer import load_transfer, score_transfer
from pipelines.evaluating.counting import EncodeCounter
from pipelines.evaluating.evaluation_tasks import Tasks, choose_tasks
from pipelines.evaluating.model_specs import label_of, numbered, options_of_model
from pipelines.evaluating.options import EvaluateOptions
from pipelines.evaluating.readout_options import open_readout
from pipelines.reading.docstrings import documents, package_files
from pipelines.runtime.progress import table
from pipelines.storage.held_out_file import read_held_out

UNTOUCHED = tuple(
    f"{MINILM},{how}"
    for how in (
        *("readout=mean", "readout=cls", "readout=first-last", "readout=static"),
        *("template=cot-bert/anchor", "template=promptbert/anchor"),
        *("template=promptbert/manual", "template=denosent"),
    )
)
STS = "STS-B,STS12,STS13"
# The scores without labels, in the table and in the correlations.
PROXIES = ("found first", "MRR@10")
RESAMPLES, MOST_EXACT = 10_000, 8
ORDERS = math.factorial(MOST_EXACT)


def read_reviews(path: Path, count: int) -> dict[str, list[str]]:
    """Return `count` reviews by label, half of each, drawn with seed 0 from lines of JSON."""
    content = path.read_bytes()
    whole = gzip.decompress(content) if path.suffix == ".gz" else content
    rows = [json.loads(line) for line in whole.decode().split("\n") if line]
    found: dict[str, list[str]] = {"0": [], "1": []}
    for place in np.random.default_rng(0).permutation(len(rows)):
        texts = found[str(rows[place]["label"])]
        if len(texts) < count // 2:
            texts.append(" ".join(str(rows[place]["text"]).split()))
    return found


def sentiment(encode: Encode, reviews: dict[str, list[str]]) -> float:
    """Return the accuracy x 100 on reviews, which take the place of MR's files."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "MR"
        home.mkdir()
        for name, label in (("neg", "0"), ("pos", "1")):
            text = "\n".join(reviews[label]) + "\n"
            (home / f"rt-polarity.{name}").write_text(text, encoding="utf-8")
        scored = score_transfer(encode, load_transfer(folder, ("MR",)))["MR"]
        return float(scored.scores["accuracy"])


def read_modules(packages: str, count: int) -> Labelled:
    """Return docstrings of two sentences or more, labelled with their files.

    `count` of them, drawn with seed 0 from the files that hold at least two.
    """
    texts: list[str] = []
    files: list[int] = []
    for number, file in enumerate(package_files(packages.split(","))):
        found = [" ".join(sentences) for sentences in documents(file) if len(sentences) > 1]
        texts += found if len(found) > 1 else []
        files += [number] * (len(found) if len(found) > 1 else 0)
    chosen = np.sort(np.random.default_rng(0).permutation(len(texts))[:count])
    numbers = np.unique(np.array(files)[chosen], return_inverse=True)[1]
    return Labelled([texts[i] for i in chosen], numbers)


def score(
    encode: EncodeFunctions,
    held_out: HeldOut,
    tasks: Tasks | None,
    reviews: dict[str, list[str]] | None,
    modules: Labelled | None,
) -> tuple[dict[str, float], str]:
    """Return an encoder's scores x 100 by name, and the interval of the first as text."""
    found = score_held_out(encode, held_out)
    scores = dict(zip(PROXIES, (found.found_first, found.mrr10), strict=True))
    if reviews is not None:
        scores["sentiment"] = sentiment(encode.texts, reviews)
    if modules is not None:
        scores["same file"] = 100 * float(same_label(encode.texts, modules).mean())
    if tasks is not None:
        entries = tasks.scores(encode.texts)
        scores |= {name: entries[name]["spearman"] for name in tasks.sts}
    ends = interval(resampled_mean(found.found, 1000).clip(0, 100))
    return scores, f"{ends.low:.1f} to {ends.high:.1f}"


def agreement(proxy: np.ndarray, label: np.ndarray) -> tuple[str, str, str]:
    """Return the correlation of two orders of M encoders, its interval and its p-value. (M,)"""
    whole = float(spearmanr(proxy, label).statistic)
    ends = interval(resampled_spearman(proxy, label, RESAMPLES).clip(-100, 100) / 100)
    p = np.mean(np.abs(_shuffled(proxy, label)) >= abs(whole) - 1e-9)
    return f"{whole:.2f}", f"{ends.low:.2f} to {ends.high:.2f}", f"{p:.4f}"


def _shuffled(proxy: np.ndarray, label: np.ndarray) -> np.ndarray:
    """Return the correlations of all orders of up to 8 encoders, else of as many random ones."""
    x, y = (ranks - ranks.mean() for ranks in (rankdata(proxy), rankdata(label)))
    draw = np.random.default_rng(0)
    many = len(x) > MOST_EXACT
    orders = (draw.permutation(x) for _ in range(ORDERS)) if many else permutations(x)
    return np.array(list(orders)) @ y / np.sqrt((x @ x) * (y @ y))


def run(given: argparse.Namespace) -> None:
    """Print the table of scores and that of the correlations."""
    models = [*(() if given.only else UNTOUCHED), *given.models]
    if len(models) < 3:
        raise UserError(f"{len(models)} models are given: an order needs at least 3")
    held_out = read_held_out(given.corpus, "test")
    tasks = choose_tasks(given.senteval, STS, allow_missing=True) if given.senteval else None
    texts = read_reviews(given.sentiment, given.reviews) if given.sentiment else None
    modules = read_modules(given.modules, given.docstrings) if given.modules else None
    labels, rows, ends = [], [], []
    for options in [options_of_model(EvaluateOptions(), model) for model in models]:
        opened = open_readout(options, [])
        labels.append(label_of(options, opened))
        encode = opened.encode.wrapped(EncodeCounter().wrap)
        scores, low_to_high = score(encode, held_out, tasks, texts, modules)
        rows.append(scores)
        ends.append(low_to_high)
    names = list(rows[0])
    order = np.argsort([-row[PROXIES[0]] for row in rows], kind="stable")
    shown = numbered(labels)
    cells = [(shown[i], ends[i], *(f"{rows[i][name]:.2f}" for name in names)) for i in order]
    print(table(cells, ("encoder", "95 % of found first", *names)), end="\n\n")
    values = {name: np.array([row[name] for row in rows]) for name in names}
    pairs = [(proxy, name) for proxy in PROXIES for name in names if name not in PROXIES]
    found = [(f"{a} and {b}", *agreement(values[a], values[b])) for a, b in pairs]
    print(table(found, (f"orders of {len(rows)} encoders", "Spearman", "95 % interval", "p")))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.label_free_score")
    made.add_argument("corpus", type=Path, help="a corpus prepared with --hold-out")
    made.add_argument("models", nargs="*", help="encoders beside the untouched readouts")
    made.add_argument("--only", action="store_true", help="leave the untouched readouts out")
    made.add_argument("--senteval", type=Path, help="a SentEval folder with STS tasks")
    made.add_argument("--sentiment", type=Path, help="reviews: JSON lines with text and label")
    made.add_argument("--reviews", type=int, default=2000, help="how many reviews to classify")
    made.add_argument("--modules", help="packages whose docstrings are compared, with commas")
    made.add_argument("--docstrings", type=int, default=2000, help="how many docstrings")
    return made


if __name__ == "__main__":
    run(parser().parse_intermixed_args())
