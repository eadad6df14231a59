"""A row of the papers' tables: its command, the paper's number, and where the study's own stands.

In a command TRAIN stands for the corpus, the SentEval folder and the output, T for the SentEval
folder; one that begins with an option continues the recipe of its paper, or `cotbert evaluate`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Ours(NamedTuple):
    """Where the study's own number stands: a part of its record, and a name in it."""

    part: str
    name: str


def trained(name: str) -> Ours:
    return Ours("trained", name)


def readout(name: str) -> Ours:
    return Ours("readouts", name)


@dataclass(frozen=True)
class Row:
    """what: the table or figure and its row. paper: the number, of BERT / of RoBERTa. ours: what
    stands beside it, or a text. against: the row whose order with this one the paper shows."""

    what: str
    command: str
    paper: str = ""
    ours: Ours | str = ""
    against: Ours | None = None

    @property
    def published(self) -> float | None:
        """The paper's number, of BERT where it gives two."""
        first = self.paper.split("/")[0].split(",")[0].split("±")[0].strip()
        try:
            return float(first)
        except ValueError:
            return None


SIMCSE, FIRST_LAST = trained("simcse-base"), readout("first-last")
NO_HUB = "needs a file that is not to be had here"
GEOMETRY = "[below](#geometry)"


def method(what: str, recipe: str, paper: str, more: str = "") -> Row:
    """Return the row of a method that the paper compares with SimCSE."""
    return Row(what, f"cotbert train {recipe} TRAIN{more}", paper, trained(recipe), SIMCSE)


def read(what: str, options: str, paper: str, name: str, against: Ours | None = None) -> Row:
    """Return the row of an untrained readout."""
    return Row(
        what, f"cotbert evaluate bert-base-uncased {options} T", paper, readout(name), against
    )
