"""What `sources.plan` makes of an input: which files there are and how they are cut."""

from __future__ import annotations

from dataclasses import dataclass, field

from cotbert_core.training.batches import COLUMNS


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


@dataclass
class Found:
    """Names of files of which something was found while they were cut. markup: they hold HTML
    tags. utf8: they look like UTF-8 though another encoding was named. text_ids: their ids are
    text, each with an example ("" where the type of a column says it)."""

    markup: list[str] = field(default_factory=list)
    utf8: list[str] = field(default_factory=list)
    text_ids: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """What will be read. ignored: files of unknown kind found in folders. companions: the columns
    of the texts that go with each text, in the order of cotbert_core.training.batches.COLUMNS.
    keep: columns whose values are handed on as they are. encoding: of text files, None for UTF-8.
    id_type: int64 or string, of the ids in id_column."""

    shards: list[Shard]
    files: list[str]
    ignored: int
    text_column: str
    id_column: str | None = None
    companions: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    encoding: str | None = None
    id_type: str = "int64"
    found: Found = field(default_factory=Found, compare=False, repr=False)

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns of a row's texts."""
        return self.text_column, *self.companions

    @property
    def columns(self) -> tuple[str, ...]:
        """Return which companions each row has, by their names in COLUMNS."""
        return COLUMNS[: len(self.companions)]
