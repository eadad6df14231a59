"""The options of `cotbert export` and `cotbert quickstart`, which have no room of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from cotbert_core.errors import unknown
from pipelines.options import shared
from pipelines.options.declare import INPUT, MODEL, OUTPUT, TRAINING, Option

Format = Literal["onnx", "folder"]


@dataclass(frozen=True)
class ExportOptions:
    """The encoder to write, and the format."""

    model: Annotated[
        str,
        Option(
            "export this model: a trained folder or an encoder NAME",
            "MODEL",
            positional=True,
            path="name",
        ),
    ]
    format: Annotated[
        Format,
        Option(
            "write a graph for ONNX Runtime, or a folder of safetensors for sentence-transformers "
            "and transformers",
            group=OUTPUT,
        ),
    ]
    template: shared.Template = None
    readout: shared.Readout = None
    allow_pickle: Annotated[
        bool,
        Option(
            "read pytorch_model.bin if MODEL has no safetensors; it can run code, so do this only "
            "if you trust the model",
            group=MODEL,
        ),
    ] = False

    def __post_init__(self) -> None:
        if self.format not in get_args(Format):
            raise unknown("format", self.format, get_args(Format))


@dataclass(frozen=True)
class QuickstartOptions:
    """The text that the quickstart trains on, and the number of steps."""

    packages: Annotated[
        str,
        Option("learn from the docstrings of these installed packages", "NAME,...", group=INPUT),
    ] = "numpy,scipy,pandas,torch,transformers,ray,mlflow,sklearn,matplotlib,sqlalchemy,pyarrow"
    sentences: Annotated[int, shared.SENTENCES] = 20_000
    steps: Annotated[
        int | None,
        Option(
            "train for this many steps",
            "N",
            group=TRAINING,
            unit="steps",
            default="what the recipe quickstart says",
        ),
    ] = None
