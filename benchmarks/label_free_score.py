"""Whether the score without labels orders encoders as labels do.

    python -m benchmarks.label_free_score CORPUS [MODEL...] [--senteval DIR] [--sentiment FILE]

Each encoder is scored on the test queries of the corpus's held-out documents and by the labels that
were given: STS-B, STS12 and STS13 of a SentEval folder, and the sentiment of reviews by SentEval's
protocol for MR (a linear classifier of frozen vectors, nested folds). The Spearman correlation of
two orders comes with a percentile interval over resampled encoders, and with the p-value of a
permutation test, exact for up to 8 encoders. Trained folders are given as MODEL, beside the
untouched readouts or (--only) instead of them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.stats import permutation_test, spearmanr

from cotbert_core.errors import UserError
from cotbert_core.evaluation import HeldOut, score_held_out
from cotbert_core.evaluation.bootstrap import interval, resampled_mean, resampled_spearman
from cotbert_core.evaluation.pairs import Encode
from cotbert_core.evaluation.transfer import transfer
from pipelines.evaluate import CountedEncode
from pipelines.evaluating.evaluation_tasks import Tasks, choose_tasks
from pipelines.evaluating.model_specs import ModelSpec, label_of, numbered
from pipelines.runtime.progress import table
from pipelines.storage.held_out_file import read_held_out

ENCODER = "all-MiniLM-L6-v2"
UNTOUCHED = tuple(
    f"{ENCODER},{how}"
    for how in (
        *("readout=mean", "readout=cls", "readout=first-last", "readout=static"),
        *("template=cot-bert/anchor", "template=promptbert/anchor"),
        *("template=promptbert/manual", "template=denosent"),
    )
)
STS = "STS-B,STS12,STS13"
# The scores without labels, in the table and in the correlations.
PROXIES = ("found first", "MRR@10")
RESAMPLES, PERMUTATIONS = 10_000, math.factorial(8)


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
        return float(transfer(encode, folder, ("MR",))["MR"].scores["accuracy"])


def score(
    encode: Encode, held_out: HeldOut, tasks: Tasks | None, reviews: dict[str, list[str]] | None
) -> tuple[dict[str, float], str]:
    """Return an encoder's scores x 100 by name, and the interval of the first as text."""
    found = score_held_out(encode, held_out)
    scores = dict(zip(PROXIES, (found.found_first, found.mrr10), strict=True))
    if reviews is not None:
        scores["sentiment"] = sentiment(encode, reviews)
    if tasks is not None:
        entries = tasks.scores(encode)
        scores |= {name: entries[name]["spearman"] for name in tasks.sts}
    ends = interval(resampled_mean(found.found, 1000))
    return scores, f"{ends.low:.1f} to {ends.high:.1f}"


def agreement(proxy: np.ndarray, label: np.ndarray) -> tuple[str, str, str]:
    """Return the correlation of two orders of M encoders, its interval and its p-value. (M,)"""
    whole = float(spearmanr(proxy, label).statistic)
    ends = interval(resampled_spearman(proxy, label, RESAMPLES) / 100)
    tested = permutation_test(
        (proxy,),
        lambda one: spearmanr(one, label).statistic,
        permutation_type="pairings",
        n_resamples=PERMUTATIONS,
        rng=0,
    )
    return f"{whole:.2f}", f"{ends.low:.2f} to {ends.high:.2f}", f"{tested.pvalue:.4f}"


def run(
    models: Sequence[str], corpus: Path, senteval: Path | None, reviews: Path | None, count: int
):
    """Print the table of scores and that of the correlations."""
    if len(models) < 3:
        raise UserError(f"{len(models)} models are given: an order needs at least 3")
    held_out = read_held_out(corpus, "test")
    tasks = choose_tasks(senteval, STS, allow_missing=True) if senteval else None
    texts = read_reviews(reviews, count) if reviews else None
    specs = [ModelSpec.parse(model) for model in models]
    labels, rows, ends = [], [], []
    for spec, opened in ((spec, spec.open()) for spec in specs):
        labels.append(label_of(spec, opened))
        scores, low_to_high = score(CountedEncode(opened.encoder), held_out, tasks, texts)
        rows.append(scores)
        ends.append(low_to_high)
    names = list(rows[0])
    order = np.argsort([-row[PROXIES[0]] for row in rows], kind="stable")
    shown = numbered(labels)
    cells = [(shown[n], ends[n], *(f"{rows[n][name]:.2f}" for name in names)) for n in order]
    print(table(cells, ("encoder", "95 % of found first", *names)), end="\n\n")
    values = {name: np.array([row[name] for row in rows]) for name in names}
    found = [
        (f"{proxy} and {name}", *agreement(values[proxy], values[name]))
        for proxy in PROXIES
        for name in names
        if name not in PROXIES
    ]
    header = (f"orders of {len(models)} encoders", "Spearman", "95 % interval", "p")
    print(table(found, header))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.label_free_score")
    parser.add_argument("corpus", type=Path, help="a corpus prepared with --hold-out")
    parser.add_argument("models", nargs="*", help="encoders beside the untouched readouts")
    parser.add_argument("--only", action="store_true", help="leave the untouched readouts out")
    parser.add_argument("--senteval", type=Path, help="a SentEval folder with STS tasks")
    parser.add_argument("--sentiment", type=Path, help="reviews: JSON lines with text and label")
    parser.add_argument("--reviews", type=int, default=2000, help="how many reviews are classified")
    return parser


if __name__ == "__main__":
    given = _parser().parse_intermixed_args()
    chosen = [*(() if given.only else UNTOUCHED), *given.models]
    run(chosen, given.corpus, given.senteval, given.sentiment, given.reviews)
