"""The sections of docs/papers.md on each study: budget, methods and other scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.harness import markdown_table as table
from benchmarks.study.entries import METHODS, READOUTS, UNTRAINED
from benchmarks.study.statistics import adjusted, at_time, gap, mean_spread
from benchmarks.study.tables import SIMCSE, trained
from pipelines.reports.values import p_value

Record = Mapping[str, Any]
NOT_RUN = "not run"


def about(record: Record) -> str:
    facts = record["about"]
    seeds = sorted({len(entry["seeds"]) for entry in record["trained"].values()})
    return "\n".join(
        [
            f"### {facts['encoder']}\n",
            f"{facts['layers']} layers x {facts['hidden']}, "
            f"{facts['parameters'] / 1e6:.1f} million weights. {facts['note']}\n",
            f"{budget(record)}, {_listed(seeds, ' or ')} seeds"
            f"{', learning rate decaying to 0' if facts['steps'] else ''}. {_rates(record)}"
            f"Commit {facts['commit']}; {facts['machine']}.\n",
        ]
    )


def budget(record: Record) -> str:
    """Return the steps and sentences that all trainings share, if they share any."""
    facts = record["about"]
    if facts["steps"] is None:
        return "Each recipe as published"
    return f"{facts['steps']} steps of {facts['batch_size']} sentences"


def _rates(record: Record) -> str:
    """Return a sentence on the candidate learning rates."""
    tried = {tuple(sorted(map(float, scores))) for scores in record["rates"].values()}
    if not tried:
        return ""
    given = "; ".join(_listed([f"{rate:g}" for rate in rates], " and ") for rates in sorted(tried))
    given += " where only prompts or prefixes are trained" if len(tried) > 1 else ""
    return (
        f"The learning rate has the best STS-B dev of those tried ({given}) with a seed that is "
        "not reported: "
        f"{_listed(sorted(record['rates']), ' and ')} have their own, the others that of the one "
        "of these whose vector they train by a similar loss. "
    )


def _listed(values: Sequence[Any], last: str) -> str:
    *some, end = map(str, values)
    return f"{', '.join(some)}{last}{end}" if some else end


def methods(record: Record) -> str:
    names = [e.label for e in METHODS.entries if e.label in record["trained"]]
    if not names:
        return ""
    entries = {name: record["trained"][name] for name in names}
    tasks = list(next(iter(entries.values()))["tasks"])
    against = [None if n == SIMCSE.name else gap(record, trained(n), SIMCSE) for n in names]
    seconds = min(np.mean([c[-1][0] for c in entry["curves"]]) for entry in entries.values())
    means = {name: float(np.mean(entry["test"])) for name, entry in entries.items()}
    order = sorted(zip(names, adjusted(against), strict=True), key=lambda pair: -means[pair[0]])
    rows = []
    for name, found in order:
        entry = entries[name]
        by_task = [f"{np.mean(entry['tasks'][task]):.2f}" for task in tasks]
        early = np.mean([at_time(curve, seconds) for curve in entry["curves"]])
        gapped = ""
        if found is not None:
            p = "" if found.p is None else f" ({p_value(found.p)})"
            gapped = f"{found.mean:+.2f}{p}"
        rows.append(
            (
                *(name, "" if entry["rate"] is None else f"{entry['rate']:g}"),
                f"{entry['dev_before']:.2f}",
                *(mean_spread(entry["dev"]), f"{early:.2f}", *by_task),
                *(mean_spread(entry["test"]), gapped, f"{entry['seconds']:.0f}"),
            )
        )
    header = (
        *("recipe", "rate", "STS-B dev before", "after", f"after {seconds:.0f} s", *tasks),
        *("average", "against SimCSE (p)", "seconds"),
    )
    return (
        table(header, rows) + "\nSpearman x 100, means over the seeds. "
        f"after {seconds:.0f} s: the best dev score, the one before training included, by the time "
        "the fastest method had ended, with the schedule of the whole run. p: of a paired t-test "
        "over the seeds, corrected for the methods of this table. seconds: of training.\n"
        + _beside_untrained(record, names)
    )


def _beside_untrained(record: Record, names: Sequence[str]) -> str:
    """Return a sentence on the number of methods that are better than the untrained encoder."""
    if "last" not in record["readouts"]:
        return ""
    untrained = record["readouts"]["last"]["score"]
    means = [float(np.mean(record["trained"][name]["test"])) for name in names]
    above = sum(mean > untrained for mean in means)
    return (
        f"\nThe mean pooling of the untrained encoder has {untrained:.2f}: {above} of {len(names)} "
        "methods are above it.\n"
    )


def readouts(record: Record) -> str:
    found = record["readouts"]
    if not found:
        return ""
    tasks = list(next(iter(found.values()))["tasks"])
    rows = [
        (
            f"`{' '.join(READOUTS[name])}`",
            *(f"{entry['tasks'][task]:.2f}" for task in tasks),
            f"{entry['score']:.2f} ({entry['low']:.2f} to {entry['high']:.2f})",
        )
        for name, entry in found.items()
    ]
    return (
        "#### Not trained\n\nThe same encoder by `cotbert evaluate` with these options, and the "
        "95 % interval of the average over the pairs. SAMPLE: the text of the sentences.\n\n"
        + table(("options", *tasks, "average"), rows)
    )


def other_scores(record: Record) -> str:
    transfer, held_out = record["transfer"], record["held_out"]
    labels = (UNTRAINED, *(entry.label for entry in METHODS.entries))
    names = [label for label in labels if label in transfer or label in held_out]
    if not names:
        return ""
    tasks = next((list(scores["tasks"]) for scores in transfer.values()), [])
    rows = [
        (name, *_accuracies(transfer.get(name), tasks), _found_first(held_out.get(name)))
        for name in names
    ]
    header = ("recipe, seed 0", *tasks, "average", "halves found first, %")
    return (
        "Accuracy x 100 on the transfer tasks at hand, and the score without labels: how often "
        "the half of a held-out sentence finds the other. The untrained encoder is read by mean "
        f"pooling.\n\n{table(header, rows)}"
    )


def _accuracies(scores: Mapping[str, Any] | None, tasks: Sequence[str]) -> list[str]:
    """Return the accuracy of each transfer task and their average."""
    if scores is None:
        return [NOT_RUN] * (len(tasks) + 1)
    values = [*(scores["tasks"][task] for task in tasks), scores["score"]]
    return [f"{value:.2f}" for value in values]


def _found_first(score: Mapping[str, float] | None) -> str:
    """Return the score without labels and its interval."""
    if score is None:
        return NOT_RUN
    return f"{score['score']:.1f} ({score['low']:.1f} to {score['high']:.1f})"


def geometry(record: Record) -> str:
    rows = [row for part in record["geometry"].values() for row in part]
    if not rows:
        return ""
    keys = ("spearman", "alignment", "uniformity", "anisotropy", "token_anisotropy")
    cells = [(f"{r['model']}, {r['readout']}", *(f"{r[key]:.4f}" for key in keys)) for r in rows]
    header = ("encoder", "Spearman", "alignment", "uniformity", "anisotropy", "of the token table")
    return (
        "#### Geometry\n\nSTS-B test; alignment over pairs graded above 4; lower is better for "
        f"alignment and uniformity.\n\n{table(header, cells)}"
    )


def templates(record: Record) -> str:
    if not record["templates"]:
        return ""
    ours = sorted(record["templates"].items(), key=lambda item: -(item[1] or 0))
    rows = [(f"`{text}`", f"{score:.2f}") for text, score in ours if score is not None]
    return (
        "### Template search\n\nSTS-B dev of the untrained `[MASK]` under each template of the "
        "greedy search (PromptBERT, Table 4: 39.34 to 73.44).\n\n"
        + table(("template", "STS-B dev"), rows)
    )


def tokens(record: Record) -> str:
    if not record.get("tokens"):
        return ""
    return f"### Predicted tokens\n\n```\n{record['tokens'].rstrip()}\n```\n"
