"""The rows of tables.md: a paper's number, the command that makes it, and where ours is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).with_name("tables.md")


class Ours(NamedTuple):
    """The place of the study's own number: a part of its record, and a name in that part."""

    part: str
    name: str


@dataclass(frozen=True)
class Row:
    """A row of a paper's table or figure.

    what: table or figure, and row. command: see tables.md. paper: the published number, "BERT /
    RoBERTa" if there are two. ours: the place of our number, or a text. against: the row that the
    paper ranks above or below this one.
    """

    what: str
    command: str
    paper: str = ""
    ours: Ours | str = ""
    against: Ours | None = None

    @property
    def published(self) -> float | None:
        """The paper's number, of BERT where it gives two."""
        first = re.split("[/,±]", self.paper)[0].strip()
        try:
            return float(first)
        except ValueError:
            return None


def trained(name: str) -> Ours:
    return Ours("trained", name)


def readout(name: str) -> Ours:
    return Ours("readouts", name)


SIMCSE = trained("simcse-base")


@cache
def read_tables() -> dict[str, tuple[Row, ...]]:
    """Return the rows of each paper."""
    papers = FILE.read_text(encoding="utf-8").split("\n## ")[1:]
    return {paper.partition("\n")[0]: tuple(map(_row, _lines(paper))) for paper in papers}


def _lines(paper: str) -> list[str]:
    """Return the lines of a paper's table, without its header."""
    return [line for line in paper.splitlines() if line.startswith("| ")][2:]


def _row(line: str) -> Row:
    what, command, paper, ours, against = (cell.strip() for cell in line.split("|")[1:-1])
    return Row(what, command.strip("`"), paper, _place(ours) or ours, _place(against))


def _place(cell: str) -> Ours | None:
    found = re.fullmatch(r"(trained|readouts|transfer): (\S+)", cell)
    return Ours(found[1], found[2]) if found else None
