"""docs/papers.md from the records of studies: no number in it is typed by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.study.entries import METHODS, READOUTS
from benchmarks.study.language_model import section
from benchmarks.study.rows import SIMCSE, Ours, Row, trained
from benchmarks.study.statistics import (
    HOLDS,
    OTHERWISE,
    UNTOLD,
    Gap,
    adjusted,
    at_time,
    gap,
    mean_spread,
    scores,
    verdict,
)
from benchmarks.study.tables import TABLES

Record = Mapping[str, Any]
NOT_RUN = "not run"
INTRODUCTION = Path(__file__).parent / "introduction.md"


def page(records: Sequence[Record]) -> str:
    """Return the page; the papers' tables hold the first record's numbers."""
    first = records[0]
    parts = [
        INTRODUCTION.read_text("utf-8"),
        *(_paper(name, rows, first) for name, rows in TABLES.items()),
    ]
    parts.append("## What was run\n")
    for record in records:
        parts += [_about(record), section(record["pretraining"]), _methods(record)]
        parts += [_readouts(record), _other_scores(record), _geometry(record)]
    parts += [_templates(first), _tokens(first)]
    return "\n".join(part for part in parts if part)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _paper(name: str, rows: Sequence[Row], record: Record) -> str:
    gaps = adjusted([_gap(record, row) for row in rows])
    found = [(row, g, _verdict(record, row, g)) for row, g in zip(rows, gaps, strict=True)]
    cells = [
        (
            row.what,
            f"`{row.command}`" if row.command else "",
            row.paper,
            _ours(record, row),
            _order(g, told),
        )
        for row, g, told in found
    ]
    counts = {said: sum(told == said for *_, told in found) for said in (HOLDS, OTHERWISE, UNTOLD)}
    said = ", ".join(f"{count} {what}" for what, count in counts.items())
    table = _table(("table", "command", "paper", "ours", "order"), cells)
    return f"## {name}\n\n{table}\nOrders of this paper: {said}.\n"


def _gap(record: Record, row: Row) -> Gap | None:
    if row.against is None or not isinstance(row.ours, Ours):
        return None
    return gap(record, row.ours, row.against)


def _verdict(record: Record, row: Row, found: Gap | None) -> str:
    published = _published(row.against)
    return "" if published is None else verdict(record, row, found, published)


def _published(ours: Ours | None) -> float | None:
    """Return the papers' number of what stands beside ours."""
    rows = (row for rows in TABLES.values() for row in rows)
    return next((r.published for r in rows if ours is not None and r.ours == ours), None)


def _ours(record: Record, row: Row) -> str:
    if not isinstance(row.ours, Ours):
        return row.ours
    found = scores(record, row.ours)
    return mean_spread(found) if found else NOT_RUN


def _order(found: Gap | None, told: str) -> str:
    if found is None or not told:
        return ""
    p = "" if found.p is None else f", p {found.p:.3f}"
    return f"{found.mean:+.2f}{p}: {told}"


def _about(record: Record) -> str:
    about = record["about"]
    seeds = sorted({len(entry["seeds"]) for entry in record["trained"].values()})
    return "\n".join(
        [
            f"### {about['encoder']}\n",
            f"{about['layers']} layers x {about['hidden']}, "
            f"{about['parameters'] / 1e6:.1f} million weights. {about['note']}\n",
            f"{about['steps']} steps of {about['batch_size']} sentences, "
            f"{_listed(seeds, ' or ')} seeds, learning rate decaying to 0. {_rates(record)}"
            f"Commit {about['commit']}; {about['machine']}.\n",
        ]
    )


def _rates(record: Record) -> str:
    """Say which learning rates were tried."""
    tried = {tuple(sorted(map(float, scores))) for scores in record["rates"].values()}
    if not tried:
        return ""
    given = "; ".join(_listed([f"{rate:g}" for rate in rates], " and ") for rates in sorted(tried))
    return (
        f"The learning rate has the best STS-B dev of those tried ({given} where only prompts or "
        "prefixes are trained) with a seed that is not reported: "
        f"{_listed(sorted(record['rates']), ' and ')} have their own, the others that of the one "
        "of these whose vector they train by a similar loss. "
    )


def _listed(values: Sequence[Any], last: str) -> str:
    *some, end = map(str, values)
    return f"{', '.join(some)}{last}{end}" if some else end


def _methods(record: Record) -> str:
    names = [e.label for e in METHODS.entries if e.label in record["trained"]]
    if not names:
        return ""
    entries = {name: record["trained"][name] for name in names}
    tasks = list(next(iter(entries.values()))["tasks"])
    against = [gap(record, trained(name), SIMCSE) for name in names]
    seconds = min(np.mean([c[-1][0] for c in entry["curves"]]) for entry in entries.values())
    order = sorted(
        zip(names, adjusted(against), strict=True), key=lambda pair: _mean(entries, pair)
    )
    rows = []
    for name, found in order:
        entry = entries[name]
        means = [f"{np.mean(entry['tasks'][task]):.2f}" for task in tasks]
        early = np.mean([at_time(curve, seconds) for curve in entry["curves"]])
        gapped = (
            "" if found is None or name == SIMCSE.name else f"{found.mean:+.2f} ({found.p:.3f})"
        )
        rows.append(
            (
                *(name, f"{entry['rate']:g}", f"{entry['dev_before']:.2f}"),
                *(mean_spread(entry["dev"]), f"{early:.2f}", *means),
                *(mean_spread(entry["test"]), gapped, f"{entry['seconds']:.0f}"),
            )
        )
    header = (
        *("recipe", "rate", "STS-B dev before", "after", f"after {seconds:.0f} s", *tasks),
        *("average", "against SimCSE (p)", "seconds"),
    )
    return (
        _table(header, rows)
        + f"\nSpearman x 100. after {seconds:.0f} s: the dev score when the fastest method had "
        "ended, with the schedule of the whole run. seconds: of training, on average.\n"
        + _beside_untrained(record, names)
    )


def _beside_untrained(record: Record, names: Sequence[str]) -> str:
    """Say how many methods are better than what the encoder gives without training."""
    if "last" not in record["readouts"]:
        return ""
    untrained = record["readouts"]["last"]["score"]
    means = [float(np.mean(record["trained"][name]["test"])) for name in names]
    above = sum(mean > untrained for mean in means)
    return (
        f"\nThe mean pooling of the untrained encoder has {untrained:.2f}: {above} of {len(names)} "
        "methods are above it.\n"
    )


def _mean(entries: Mapping[str, Any], pair: tuple[str, Gap | None]) -> float:
    return -float(np.mean(entries[pair[0]]["test"]))


def _readouts(record: Record) -> str:
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
        + _table(("options", *tasks, "average"), rows)
    )


def _other_scores(record: Record) -> str:
    names = [name for name in record["transfer"] if name in record["held_out"]]
    if not names:
        return ""
    tasks = list(record["transfer"][names[0]]["tasks"])
    rows = []
    for name in names:
        transfer, held_out = record["transfer"][name], record["held_out"][name]
        accuracies = [f"{transfer['tasks'][task]:.2f}" for task in tasks]
        interval = f"{held_out['score']:.1f} ({held_out['low']:.1f} to {held_out['high']:.1f})"
        rows.append((name, *accuracies, f"{transfer['score']:.2f}", interval))
    header = ("recipe, seed 0", *tasks, "average", "halves found first, %")
    return (
        "Accuracy x 100 on the transfer tasks at hand, and the score without labels: how often "
        f"the half of a held-out sentence finds the other.\n\n{_table(header, rows)}"
    )


def _geometry(record: Record) -> str:
    rows = [row for part in record["geometry"].values() for row in part]
    if not rows:
        return ""
    keys = ("spearman", "alignment", "uniformity", "anisotropy", "token_anisotropy")
    cells = [(_label(r), *(f"{r[key]:.4f}" for key in keys)) for r in rows]
    header = ("encoder", "Spearman", "alignment", "uniformity", "anisotropy", "of the token table")
    return (
        "#### Geometry\n\nSTS-B test; alignment over pairs graded above 4; lower is better for "
        f"alignment and uniformity.\n\n{_table(header, cells)}"
    )


def _label(row: Mapping[str, Any]) -> str:
    """Return a model's run and readout, without the folders of this machine."""
    folders = Path(row["model"]).parts
    if folders[-1] == "model":
        folders = folders[:-1]
    name = folders[-2] if folders[-1].startswith("seed-") else folders[-1]
    return f"{name}, {row['readout']}"


def _templates(record: Record) -> str:
    if not record["templates"]:
        return ""
    ours = sorted(record["templates"].items(), key=lambda item: -(item[1] or 0))
    rows = [(f"`{text}`", f"{score:.2f}") for text, score in ours if score is not None]
    return (
        "### Template search\n\nSTS-B dev of the untrained `[MASK]` under each template of the "
        "greedy search (PromptBERT, Table 4: 39.34 to 73.44).\n\n"
        + _table(("template", "STS-B dev"), rows)
    )


def _tokens(record: Record) -> str:
    if not record.get("tokens"):
        return ""
    return f"### Predicted tokens\n\n```\n{record['tokens'].rstrip()}\n```\n"
