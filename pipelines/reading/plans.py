"""What `sources.plan` makes of an input: which files there are and how they are cut."""

from __future__ import annotations

from dataclasses import dataclass, field

from cotbert_core.batch import COLUMNS


@dataclass(frozen=True)
class Shard:
    """A piece of one file. start, stop: bytes of a line file (stop 0: all of it), row groups of a
    Parquet file, rows of a data set. rows: how many it has; None where that takes reading it."""

    path: str
    kind: str
    start: int = 0
    stop: int = 0
    first_row: int = 0
    files: tuple[str, ...] = ()
    rows: int | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Plan:
    """What will be read. ignored: files of unknown kind found in folders. companions: the columns
    of the texts that go with each text, in the order of cotbert_core.batch.COLUMNS. keep: columns
    whose values are handed on as they are."""

    shards: list[Shard]
    files: list[str]
    ignored: int
    text_column: str
    id_column: str | None = None
    companions: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns of a row's texts."""
        return self.text_column, *self.companions

    @property
    def columns(self) -> tuple[str, ...]:
        """Which companions each row has, by their names in cotbert_core.batch.COLUMNS."""
        return COLUMNS[: len(self.companions)]
