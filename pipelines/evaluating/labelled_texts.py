"""Read the labelled texts on which `cotbert evaluate --labelled` checks an encoder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cotbert_core.errors import UserError, counted
from cotbert_core.evaluation.labelled import Labelled
from pipelines.cleaning.options import in_order
from pipelines.cleaning.steps import cleaning
from pipelines.evaluating.options import LABEL_COLUMN, LABELLED_ALONE, EvaluateOptions
from pipelines.reading import sources
from pipelines.reading.columns import check_reading
from pipelines.reading.documents import as_text, has_no_value
from pipelines.reading.text_files import read_pieces
from pipelines.runtime.progress import say

# Maximum number of texts, since each is compared with all others. More are sampled at random.
MOST_TEXTS = 10_000
# The same where they choose: a dev check takes 2 s on two cores, 15 steps of 64 sentences 15 s.
MOST_DEV_TEXTS = 2_000
# How other programs write a missing value as a text, in small letters.
WRITTEN_OUT = ("<na>", "n/a", "nan", "none", "null")
NO_LABEL, REPEATED = "no_label", "repeated"


def read_labelled(
    options: EvaluateOptions, most: int = MOST_TEXTS, also: Sequence[str] = ()
) -> Labelled | None:
    """Return the distinct texts with a label, at most `most`, or None if no file is given.

    also: further input, to which the text column, encoding and delimiter may belong. Raises
    UserError if the file or a column is missing, or if the labels tell nothing.
    """
    if options.labelled is None:
        for name in LABELLED_ALONE:
            if given := getattr(options, name):
                shown = given if isinstance(given, str) else ",".join(given)
                raise UserError(f"{name} is {shown!r} without labelled texts: give --labelled")
        return None
    labels, dropped = _read(options.labelled, options, also)
    if not labels:
        raise UserError(
            f"labelled {options.labelled!r} has no row with a text and a value in column "
            f"{options.label_column or LABEL_COLUMN!r}{_reasons(dropped)}: give another file or "
            "--label-column"
        )
    made = _sampled(labels, most)
    names = made.label_count
    if names < 2 or not len(made.asked):
        raise UserError(
            f"labelled {options.labelled!r} has {counted(len(made.texts), 'different text')} and "
            f"{counted(names, 'label')}: at least two labels are needed, one of them of two texts "
            "or more"
        )
    left_out = f" of {len(labels):,}, chosen at random" if len(labels) > len(made.texts) else ""
    single = len(made.texts) - len(made.asked)
    verb = "is" if single == 1 else "are"
    unscored = f"; {counted(single, 'text')} with a label of no other text {verb} not scored"
    unscored = unscored if single else ""
    say(
        f"labelled texts: {len(made.texts):,}{left_out}, with {names:,} labels{_reasons(dropped)}"
        f"{unscored}; a random other text has the same label in {made.chance:.1f} %"
    )
    return made


def read_dev_labels(
    labelled: str | None,
    label_column: str | None,
    most: int,
    also: Sequence[str],
    **reading: Any,
) -> Labelled | None:
    """Return at most `most` of the labelled texts by which an encoder is chosen, as `read_labelled`
    does. reading: how they are read; without labels it concerns `also`, other texts, alone."""
    given = reading if labelled is not None else {}
    options = EvaluateOptions(labelled=labelled, label_column=label_column, **given)
    return read_labelled(options, most, also)


def _read(
    name: str, options: EvaluateOptions, also: Sequence[str]
) -> tuple[dict[str, str], Counter[str]]:
    """Return the label of each distinct text, and the number of dropped rows by reason.

    Shows a warning for each file that loses rows.
    """
    plan = sources.plan(
        [name],
        options.text_column or "text",
        keep=(options.label_column or LABEL_COLUMN,),
        keep_option="--label-column",
        encoding=options.encoding,
        delimiter=options.delimiter,
    )
    check_reading(plan, also)
    plan = replace(plan, clean=cleaning(in_order(options.clean)))
    labels: dict[str, str] = {}
    dropped: Counter[str] = Counter()
    for piece in read_pieces(plan, "markup" in options.clean):
        dropped += piece.dropped
        for text, value in zip(piece.texts, piece.passthrough[0], strict=True):
            if has_no_value(value):
                dropped[NO_LABEL] += 1
            elif text in labels:
                dropped[REPEATED] += 1
            else:
                labels[text] = as_text(value).strip()
    written = Counter(label for label in labels.values() if label.lower() in WRITTEN_OUT)
    if written:
        say(
            f"note: the label of {counted(written.total(), 'text')} in {name!r} is "
            f"{' or '.join(map(repr, written))}, read like any other: if that means that there is "
            "none, empty these cells"
        )
    return labels, dropped


def _sampled(labels: dict[str, str], most: int) -> Labelled:
    """Return at most `most` of the texts, in their order."""
    texts = list(labels)
    chosen = np.sort(np.random.default_rng(0).permutation(len(texts))[:most])
    kept = [texts[number] for number in chosen]
    numbers = np.unique([labels[text] for text in kept], return_inverse=True)[1]
    return Labelled(kept, numbers)


def _reasons(dropped: Counter[str]) -> str:
    some = ", ".join(f"{count:,} {reason}" for reason, count in dropped.items())
    return f" (rows dropped: {some})" if some else ""
