"""What `cotbert embed` is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cotbert_core.errors import UserError, unknown
from pipelines.reading.encodings import named_encoding

if TYPE_CHECKING:  # the command line reads this file, and pydantic takes 0.2 s
    from cotbert_core.settings import Attention, Precision

DTYPES = ("float32", "float16", "int8")
ON_LONG = ("truncate", "error", "split-mean")
BACKENDS = ("torch", "openvino")
# The columns of a part that are not passed through.
ID_COLUMN, VECTOR_COLUMN = "id", "embedding"
# Why a row of more tokens than the model reads has no vector, where it is to have none.
TOO_LONG = "too_many_tokens"
# int8: rows whose vectors set the scale.
CALIBRATION_ROWS = 2048
# What may change between a job and the one that goes on with it.
FREE = ("workers",)


@dataclass(frozen=True)
class EmbedOptions:
    """id_column None: the column `id` of Parquet files that have one, else row numbers. workers
    None: one for each GPU, or one for each machine without any. keep: columns of the input handed
    on. truncate_dim: the first so many dimensions alone. on_long: what becomes of a text of more
    tokens than the model reads: its beginning, nothing (the row is listed), or the mean of its
    pieces' vectors. calibration_rows: of int8. backend: what runs the encoder on CPU cores.
    attention: how its rows attend (cotbert_core.encoder.attention). encoding: of txt, csv, tsv and
    jsonl files; None for UTF-8."""

    model: str
    inputs: tuple[str, ...]
    text_column: str = "text"
    id_column: str | None = None
    dtype: str = "float32"
    normalize: bool = False
    workers: int | None = None
    template: str | None = None
    readout: str | None = None
    precision: Precision = "auto"
    keep: tuple[str, ...] = ()
    truncate_dim: int | None = None
    on_long: str = "truncate"
    calibration_rows: int = CALIBRATION_ROWS
    backend: str = "torch"
    attention: Attention = "auto"
    encoding: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "encoding", named_encoding(self.encoding))
        if self.dtype not in DTYPES:
            raise UserError(f"dtype is {self.dtype!r}: choose one of {', '.join(DTYPES)}")
        if self.on_long not in ON_LONG:
            raise unknown("way with long texts", self.on_long, ON_LONG)
        if self.backend not in BACKENDS:
            raise unknown("backend", self.backend, BACKENDS)
        if self.backend != "torch" and self.attention != "auto":
            raise UserError(
                f"attention is {self.attention!r} and backend {self.backend!r} has its own: leave "
                "one of them out"
            )
        for name in ("workers", "truncate_dim", "calibration_rows"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"{name} is {value}: give at least 1")
        self._check_kept()

    def _check_kept(self) -> None:
        twice = [name for name in self.keep if self.keep.count(name) > 1]
        if twice:
            raise UserError(f"keep names {twice[0]!r} twice: give each column once")
        for name in (ID_COLUMN, VECTOR_COLUMN):
            if name in self.keep:
                raise UserError(
                    f"keep names {name!r}, which the vectors have as a column of their own: leave "
                    "it out, or rename the input's"
                )

    @property
    def decisive(self) -> dict[str, Any]:
        """The options that decide what is written, in whatever order the inputs were named."""
        # Without an encoding the record is that of versions that knew none.
        left_out = (*FREE, *(["encoding"] if self.encoding is None else []))
        told = {key: value for key, value in vars(self).items() if key not in left_out}
        return {**told, "inputs": sorted(set(self.inputs)), "keep": list(self.keep)}
