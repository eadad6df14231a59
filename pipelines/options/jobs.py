"""The options of `cotbert export`, `quantize`, `merge` and `quickstart`, each a single module."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from cotbert_core.errors import UserError
from pipelines.options import shared
from pipelines.options.checks import at_least
from pipelines.options.declare import INPUT, MODEL, OUTPUT, SCORES, TRAINING, Option

Format = Literal["onnx", "folder"]
# Fewest texts that calibrate an int8 graph: the ranges of fewer would not represent the input.
LEAST_TEXTS = 64


@dataclass(frozen=True)
class ExportOptions:
    """The encoder to write, and the format."""

    model: Annotated[
        str,
        Option(f"export this model: {shared.MODEL_NAMES}", "MODEL", positional=True, path="name"),
    ]
    format: Annotated[
        Format,
        Option(
            "write a graph for ONNX Runtime, or a folder of safetensors for sentence-transformers "
            "and transformers",
            group=OUTPUT,
        ),
    ]
    template: str | None = shared.TEMPLATE.field(None)
    readout: shared.Readout = None
    allow_pickle: bool = Option(
        "read pytorch_model.bin if MODEL has no safetensors; it can run code, so do this only "
        "if you trust the model",
        group=MODEL,
    ).field(False)


@dataclass(frozen=True)
class QuantizeOptions:
    """The encoder, the texts that calibrate its int8 graph, and the largest accepted loss."""

    model: Annotated[str, shared.MODEL_ARGUMENT]
    inputs: Annotated[tuple[str, ...], shared.INPUTS]
    text_column: str = shared.TEXT_COLUMN.field("text")
    encoding: str | None = shared.ENCODING.field(None)
    delimiter: str | None = shared.DELIMITER.field(None)
    rows: int = Option(
        "calibrate on this many texts, from places all over the input; as many others are compared",
        "N",
        group=INPUT,
        unit="texts",
    ).field(1024)
    max_loss: float = Option(
        "write nothing if a score falls by more than this: Spearman x 100, or MRR@10 x 100 of "
        "held-out documents",
        "X",
        group=SCORES,
        unit="points",
    ).field(0.5)
    senteval: Path | None = replace(
        shared.SENTEVAL,
        help="score the STS tasks in this SentEval folder",
        group=SCORES,
        exclusive="",
    ).field(None)
    pairs: Path | None = replace(shared.DEV_PAIRS, group=SCORES, exclusive="").field(None)
    corpus: Path | None = shared.HELD_OUT_CORPUS.field(None)

    def __post_init__(self) -> None:
        at_least(self, LEAST_TEXTS, "rows")
        if not self.max_loss >= 0:
            raise UserError(f"max_loss is {self.max_loss}: give a number of points from 0")


@dataclass(frozen=True)
class MergeOptions:
    """The two encoders to average, and the share of the second."""

    first: Annotated[
        str,
        Option(
            f"average this model, such as the untouched encoder: {shared.MODEL_NAMES}",
            "A",
            positional=True,
            path="name",
        ),
    ]
    second: Annotated[
        str,
        Option(
            "average this model with A and keep its template, pooling and head: the trained one",
            "B",
            positional=True,
            path="name",
        ),
    ]
    weight: float = Option(
        "take this share of each weight from B, 0 to 1, and the rest from A", "W", group=MODEL
    ).field(0.5)

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= 1:
            raise UserError(f"weight is {self.weight}: give B's share, a number from 0 to 1")


@dataclass(frozen=True)
class QuickstartOptions:
    """The text that the quickstart trains on, and the number of steps."""

    packages: str = Option(
        "learn from the docstrings of these installed packages", "NAME,...", group=INPUT
    ).field(
        "numpy,scipy,pandas,torch,transformers,ray,mlflow,sklearn,matplotlib,sqlalchemy,pyarrow"
    )
    sentences: int | None = replace(shared.SENTENCES, default="use all of them").field(None)
    steps: int = Option(
        "train the winner for this many steps, and CoT-BERT for a sixth of them",
        "N",
        group=TRAINING,
        unit="steps",
    ).field(60)
