"""The labelled texts of an adaptation: one half chooses the encoder, the other confirms it."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

import numpy as np

from cotbert_core.errors import UserError
from cotbert_core.evaluation.bootstrap import LEAST_GROUPS
from cotbert_core.evaluation.labelled import Labelled
from pipelines.adapting.options import AdaptOptions
from pipelines.evaluating.labelled_texts import MOST_DEV_TEXTS, read_dev_labels
from pipelines.storage.held_out_file import dev_half


@dataclass(frozen=True)
class LabelledHalves:
    """dev: choose the step and the encoder. test: confirm it."""

    dev: Labelled
    test: Labelled

    @property
    def stamp(self) -> list[int]:
        """By what a continued job sees that the texts or their labels have changed."""
        halves = (self.dev, self.test)
        whole = repr([(half.texts, half.labels.tolist()) for half in halves])
        return [len(self.dev.texts) + len(self.test.texts), crc32(whole.encode())]


def read_halves(options: AdaptOptions) -> LabelledHalves | None:
    """Return the halves of the labelled texts, None if no file is given.

    Raises UserError if the file is missing, if too few texts of a half share a label, or if all
    texts of a half have the same one.
    """
    labelled = read_dev_labels(
        options.labelled,
        options.label_column,
        2 * MOST_DEV_TEXTS,
        options.inputs,
        text_column=options.text_column,
        encoding=options.encoding,
        delimiter=options.delimiter,
        clean=options.clean.steps,
    )
    if labelled is None:
        return None
    is_dev = dev_half(labelled.texts)
    halves = LabelledHalves(_part(labelled, is_dev), _part(labelled, ~is_dev))
    if (fewest := min(len(half.asked) for half in (halves.dev, halves.test))) < LEAST_GROUPS:
        raise UserError(
            f"labelled {options.labelled!r} is divided into two halves, and {fewest} texts of one "
            f"share their label with another: at least {LEAST_GROUPS} are needed, so give more "
            "labelled texts, or a --label-column with fewer different labels"
        )
    # By such a half every encoder is right about every text.
    if min(half.label_count for half in (halves.dev, halves.test)) < 2:
        raise UserError(
            f"labelled {options.labelled!r} is divided into two halves, and all texts of one have "
            "the same label: at least two labels are needed in each, so give more texts with the "
            "rarer labels"
        )
    return halves


def _part(labelled: Labelled, chosen: np.ndarray) -> Labelled:
    """Return the chosen texts. chosen: (N,) whether a text is one of them."""
    places = np.flatnonzero(chosen)
    return Labelled([labelled.texts[place] for place in places], labelled.labels[places])
