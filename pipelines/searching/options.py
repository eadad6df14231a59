"""The options of `cotbert index`."""

from __future__ import annotations

from dataclasses import dataclass

from cotbert_core.errors import UserError

FLAT = "Flat"


@dataclass(frozen=True)
class IndexOptions:
    """The kind of index. Raises UserError for an invalid value.

    factory: FAISS's description of an index. sample: number of rows for training an index, sampled
    with `seed`. FAISS recommends 39 to 256 rows per cluster.
    """

    factory: str = FLAT
    sample: int = 100_000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.sample < 1:
            raise UserError(f"sample is {self.sample}: give at least 1 row")
        if self.seed < 0:
            raise UserError(f"seed is {self.seed}: give 0 or more")
        if "IDMap" in self.factory:
            raise UserError(
                f"factory is {self.factory!r}: leave IDMap out, every index stores the ids"
            )
