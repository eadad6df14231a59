"""The options of `cotbert embed`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cotbert_core.choices import Attention
from cotbert_core.errors import UserError
from pipelines.cleaning.options import CLEAN, in_order
from pipelines.options import shared
from pipelines.options.checks import at_least
from pipelines.options.declare import INPUT, MODEL, OUTPUT, Option
from pipelines.reading.data_folder import PASSAGES_COLUMN
from pipelines.reading.delimiters import named_delimiter
from pipelines.reading.encodings import named_encoding

Dtype = Literal["float32", "float16", "int8"]
OnLong = Literal["truncate", "error", "split-mean"]
# The columns of a part that do not come from the input.
ID_COLUMN, VECTOR_COLUMN, SCALE_COLUMN = "id", "embedding", "scale"
# The reason of a row that has no vector because it has more tokens than the model reads.
TOO_LONG = "too_many_tokens"


@dataclass(frozen=True)
class EmbedOptions:
    """The options of a job.

    id_column None: the column `id` if all files are Parquet and it holds whole numbers, else row
    numbers.
    """

    model: Annotated[str, shared.MODEL_ARGUMENT]
    inputs: Annotated[tuple[str, ...], shared.INPUTS]
    text_column: str = shared.TEXT_COLUMN.field("text")
    id_column: str | None = Option(
        "read the ids of the rows, whole numbers or text, from this column",
        "COL",
        group=INPUT,
        default="the column id of Parquet files if it holds whole numbers, else row numbers",
    ).field(None)
    dtype: Dtype = Option("store the vectors in this number format", group=OUTPUT).field("float32")
    normalize: bool = Option("scale each vector to unit length", group=OUTPUT).field(False)
    workers: int | None = shared.WORKERS.field(None)
    template: str | None = shared.TEMPLATE.field(None)
    readout: shared.Readout = None
    precision: shared.PrecisionOrInt8 = "auto"
    keep: tuple[str, ...] = Option(
        "copy these columns of the input into the output",
        "COL,...",
        group=OUTPUT,
        default="none",
        convert=shared.comma_names,
    ).field(())
    truncate_dim: int | None = Option(
        "store only this many leading dimensions, rescaled to unit length if the vector had it",
        "N",
        group=OUTPUT,
        unit="dimensions",
        default="all dimensions",
    ).field(None)
    on_long: OnLong = Option(
        "choose what happens to a text with more tokens than the model reads: embed its "
        "beginning, skip and list it, or average the vectors of its pieces by their tokens",
        group=INPUT,
    ).field("truncate")
    passages: int | None = Option(
        "also store a vector for each passage of this many words of a longer text, by which "
        "`cotbert search` finds more in long documents",
        "N",
        group=INPUT,
        unit="words",
        default="one vector for each text",
    ).field(None)
    backend: shared.EncoderBackend = "auto"
    attention: Attention = Option(
        "use this attention; auto is plain on a CPU (eager for other families than BERT, "
        "RoBERTa and XLM-R) and sdpa on a GPU",
        group=MODEL,
    ).field("auto")
    encoding: str | None = shared.ENCODING.field(None)
    delimiter: str | None = shared.DELIMITER.field(None)
    clean: tuple[str, ...] = CLEAN.field(())
    limit: int | None = shared.LIMIT.field(None)
    wrapped: bool = shared.WRAPPED.field(False)
    documents: Literal["file"] | None = Option(
        "embed each file of the input as one text, with its path for an id",
        group=INPUT,
        default="embed each row",
    ).field(None)
    update: Path | None = Option(
        "take over the vectors of these earlier, finished embeddings of the same model and "
        "options, and embed only the texts that they lack",
        "DIR",
        group=INPUT,
        default="embed all rows",
    ).field(None)
    keep_gone: bool = Option(
        "with --update, keep the rows whose ids the input no longer has", group=INPUT
    ).field(False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "clean", in_order(self.clean))
        object.__setattr__(self, "encoding", named_encoding(self.encoding))
        if self.backend == "openvino" and self.attention != "auto":
            raise UserError(
                f"attention is {self.attention!r}, and backend {self.backend!r} has its own "
                "attention: leave one of them out"
            )
        object.__setattr__(self, "delimiter", named_delimiter(self.delimiter))
        at_least(self, 1, "limit", "workers", "truncate_dim", "passages")
        self._check_documents()
        if self.keep_gone and self.update is None:
            raise UserError("keep_gone needs update: name the embeddings whose rows are to be kept")
        repeated = [name for name in self.keep if self.keep.count(name) > 1]
        if repeated:
            raise UserError(f"keep names {repeated[0]!r} twice: give each column once")
        made = [ID_COLUMN, VECTOR_COLUMN]
        made += [PASSAGES_COLUMN] if self.passages else []
        made += [SCALE_COLUMN] if self.dtype == "int8" else []
        for name in made:
            if name in self.keep:
                raise UserError(
                    f"keep names {name!r}, which is also a column of the output: leave it out, or "
                    "rename the input's column"
                )

    def _check_documents(self) -> None:
        for name in ("id_column", "keep"):
            if self.documents and getattr(self, name):
                raise UserError(
                    f"documents is 'file' and {name} names a column of rows: leave one of them out"
                )

    @property
    def decisive(self) -> dict[str, Any]:
        """The options that decide the output; neither the order of the inputs nor the number of
        workers does, with which a job may be continued."""
        options = {key: value for key, value in vars(self).items() if key != "workers"}
        if self.update is not None:
            options["update"] = str(self.update)
        lists = {"keep": list(self.keep), "clean": list(self.clean)}
        return {**options, "inputs": sorted(set(self.inputs)), **lists}
