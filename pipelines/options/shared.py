"""The options that several commands share, each described once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from cotbert_core.choices import Backend, Precision
from cotbert_core.choices import Readout as Pooling
from cotbert_core.errors import UserError
from pipelines.options.declare import (
    GENERAL,
    INPUT,
    MODEL,
    OUTPUT,
    RESOURCES,
    REWRITING,
    SCORES,
    SELECTION,
    TRAINING,
    Option,
)


def comma_names(text: str) -> tuple[str, ...]:
    """Return the names in a comma-separated text."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def parse_seeds(text: str) -> tuple[int, ...]:
    """Return seeds 0 to 9 for `10`, seed 10 for `10,`, and 3, 5 and 8 for `3,5,8`.

    Raises UserError for anything else.
    """
    try:
        numbers = tuple(int(part) for part in text.removesuffix(",").split(","))
    except ValueError:
        numbers = ()
    counted = len(numbers) == 1 and "," not in text
    seeds = tuple(range(numbers[0])) if counted else numbers
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise UserError(
            f"seeds is {text!r}: give a number of seeds (10), or distinct seeds with commas (3,5,8)"
        )
    return seeds


RESUME = Option("", obsolete="the same command continues an interrupted job")
OUTPUT_FOLDER = Option("write into this new or empty folder", "DIR", group=OUTPUT)
JOB_FOLDER = replace(
    OUTPUT_FOLDER,
    help="write into this new or empty folder; the same command continues there after an "
    "interruption",
)
INPUTS = Option(
    "read text from files (.txt .md .rst .csv .tsv .jsonl, also as .gz or .zst, and .parquet), "
    "folders, globs, s3:// and gs:// addresses of these, docstrings:PACKAGE,... or "
    "hf:NAME[:CONFIG][:SPLIT]",
    "PATH",
    group=INPUT,
    flag="--input",
    path="input",
)
TEXT_COLUMN = Option(
    "read texts from this column of csv, tsv, jsonl and parquet files; several, e.g. title,body, "
    "are joined to one text",
    "COL,...",
    group=INPUT,
)
AUGMENTED_COLUMN = Option(
    "read a second text of the same meaning from this column",
    "COL",
    group=INPUT,
    default="no second text",
)
NEGATIVE_COLUMN = Option(
    "read a text that looks similar but differs in meaning from this column",
    "COL",
    group=INPUT,
    default="no negative text",
)
ENCODING = Option(
    "decode txt, csv, tsv and jsonl files with this encoding, e.g. latin-1, cp1252 or utf-16",
    "NAME",
    group=INPUT,
    default="utf-8",
)
DELIMITER = Option(
    "split the rows of csv and tsv files at this character, e.g. ';', '|' or tab",
    "SIGN",
    group=INPUT,
    default="a comma for csv, a tab for tsv",
)
WRAPPED = Option(
    "read txt, md and rst files whose lines are wrapped: join the lines up to a blank line, a "
    "heading or a list item to one text",
    group=INPUT,
)
LIMIT = Option(
    "read only the first N rows of the input, to try it out",
    "N",
    group=INPUT,
    unit="rows",
    default="read all rows",
)
TEXT_CORPUS = Option(
    "read sentences from this text file or folder",
    "TEXT",
    group=INPUT,
    path="input",
    default="the sentences of the graded pairs",
)
SENTENCES = Option("use at most this many sentences", "N", group=INPUT, unit="sentences")
MODEL_NAMES = (
    "the folder of a model or of a training run, an encoder NAME, or, from MLflow, "
    "models:/NAME@ALIAS, models:/NAME/VERSION, models:/NAME/latest or runs:/ID/NAME"
)
MODEL_ARGUMENT = Option(f"use this model: {MODEL_NAMES}", "MODEL", positional=True, path="name")
ENCODER = Option(
    "use this encoder and its tokenizer: a folder or a hub name", "NAME", group=MODEL, path="name"
)
TEMPLATE_NAMES = "a name from `cotbert templates`, or a text with [X] for the sentence and [MASK]"
TEMPLATE = Option(
    f"read the vector at the last mask of this template: {TEMPLATE_NAMES}; without [MASK], e.g. "
    "'query: [X]', only put the text around the sentence",
    "TEMPLATE",
    group=MODEL,
    default="the model's own",
)
READOUT = Option(
    "read the vector at the template's mask, at the first token, or as the mean of the last layer",
    group=MODEL,
    default="the model's own",
)
PRECISION = Option(
    "compute in this number format; auto is bf16 if the machine is faster with it, else fp32",
    group=MODEL,
)
SEED = Option("use this seed for random choices", "N", group=GENERAL)
SEEDS = Option(
    "train with this many seeds, counted from 0, or with listed seeds such as 3,5,8 (one: 3,)",
    "N",
    group=TRAINING,
    default="1 seed, that of the settings",
    convert=parse_seeds,
)
BEAM = Option("search with a beam of this many outputs; 1 is greedy search", "N", unit="outputs")
TEMPERATURE = Option(
    "sample at this temperature",
    "X",
    group=REWRITING,
    default="beam search for back-translation, the endpoint's own for llm",
)
STEPS = Option("train for this many steps", "N", group=TRAINING, flag="--steps", unit="steps")
BATCH_SIZE = Option(
    "train on this many sentences in each step", "N", group=TRAINING, unit="sentences"
)
LEARNING_RATE = Option("train with this learning rate", "X", group=TRAINING)
WORKERS = Option(
    "run this many workers",
    "N",
    group=RESOURCES,
    unit="workers",
    default="1 worker for each GPU, or 1 for each machine without GPUs",
)
MAX_CONCURRENT = Option(
    "run this many trials at a time; they share the cores",
    "N",
    group=RESOURCES,
    unit="trials",
    default="1 trial, or as many as fit on GPUs or with the setting cpus_per_worker",
)
SENTEVAL = Option(
    "score on dev sets in this SentEval folder: STS-B, or those that the setting `dev` names",
    "DIR",
    group=SELECTION,
    exclusive="pairs",
    default="--dev-pairs, or the pairs that come with cotbert",
)
DEV_PAIRS = Option(
    "use the graded pairs in this tab-separated file with the columns score, sentence1, sentence2",
    "FILE",
    group=SELECTION,
    flag="--dev-pairs",
    exclusive="pairs",
    default="the pairs that come with cotbert",
)
DENOISE = Option(
    "subtract the vector of the empty template, computed with shifted positions or with padding "
    "tokens",
    group=MODEL,
)

HELD_OUT_CORPUS = Option(
    "score how often a test query finds its own document among the held-out documents of "
    "this corpus (`cotbert prepare --hold-out`), by cosine, by keywords and by both",
    "DIR",
    group=SCORES,
    path="input",
    default="no documents",
)
PRECISION_OR_INT8 = replace(
    PRECISION,
    help="compute in this number format; auto is int8 with an int8 graph and openvino, bf16 if the "
    "machine is faster with it, else fp32",
)
BACKEND = Option(
    "run the encoder with this library; auto is openvino for a MODEL with an int8 graph (`cotbert "
    "quantize`) on a machine without GPUs, else torch; openvino needs the package openvino",
    group=RESOURCES,
)

OutputFolder = Annotated[Path, OUTPUT_FOLDER]
JobFolder = Annotated[Path, JOB_FOLDER]
OutputFile = Annotated[
    Path, Option("write one template per line into this new file", "FILE", group=OUTPUT)
]
Readout = Annotated[Pooling | None, READOUT]
EncoderPrecision = Annotated[Precision, PRECISION]
PrecisionOrInt8 = Annotated[Precision, PRECISION_OR_INT8]
EncoderBackend = Annotated[Backend, BACKEND]


@dataclass(frozen=True, kw_only=True)
class KeptFiles:
    """What a successful training keeps besides its model.

    keep_checkpoints: which ones are kept. log_model: whether MLflow gets a copy of model/.
    """

    keep_checkpoints: Literal["none", "best", "all"] = Option(
        "keep these checkpoints after a successful run: none, the one that model/ was made from "
        "(best), or the three that are kept during a run, the two newest and the best (all)",
        group=OUTPUT,
    ).field("none")
    log_model: bool = Option(
        "also copy model/ to MLflow's artifact store, for machines that do not see the output "
        "folder",
        group=OUTPUT,
    ).field(False)


MODEL_ALONE = KeptFiles()
