"""The options of `cotbert embed`."""

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
# The reason of a row that has no vector because it has more tokens than the model reads.
TOO_LONG = "too_many_tokens"
# Number of rows from which the scale of int8 is computed.
CALIBRATION_ROWS = 2048
# Options that may change when an unfinished job is continued.
FREE = ("workers",)


@dataclass(frozen=True)
class EmbedOptions:
    """What is embedded and how. Raises UserError for an invalid value.

    id_column: column of the row ids; None uses the column `id` of Parquet files, otherwise row
    numbers. workers: None for one per GPU, or one per machine without GPUs. keep: columns of the
    input to pass through. truncate_dim: number of leading dimensions to keep; None for all.
    on_long: what to embed of a text of more tokens than the model reads: its beginning
    ("truncate"), nothing ("error": the row is listed as skipped), or the mean of its pieces'
    vectors ("split-mean"). calibration_rows: rows from which the scale of int8 is computed.
    backend: the engine that runs the encoder. attention: implementation of attention
    (cotbert_core.encoder.attention). encoding: that of txt, csv, tsv and jsonl files; None for
    UTF-8.
    """

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
            raise unknown("on_long", self.on_long, ON_LONG)
        if self.backend not in BACKENDS:
            raise unknown("backend", self.backend, BACKENDS)
        if self.backend != "torch" and self.attention != "auto":
            raise UserError(
                f"attention is {self.attention!r}, and backend {self.backend!r} has its own "
                "attention: leave one of them out"
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
                    f"keep names {name!r}, which is also a column of the output: leave it out, or "
                    "rename the input's column"
                )

    @property
    def decisive(self) -> dict[str, Any]:
        """The options that decide what is written; the order of the inputs does not matter."""
        # Without an encoding the record equals that of versions without this option.
        left_out = (*FREE, *(["encoding"] if self.encoding is None else []))
        options = {key: value for key, value in vars(self).items() if key not in left_out}
        return {**options, "inputs": sorted(set(self.inputs)), "keep": list(self.keep)}
