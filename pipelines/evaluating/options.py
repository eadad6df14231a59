"""The options of `cotbert evaluate` and `cotbert geometry`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from cotbert_core import choices
from pipelines.cleaning.options import CLEAN
from pipelines.options import shared
from pipelines.options.checks import only_with
from pipelines.options.declare import MODEL, SCORES, Option

Readout = Literal[choices.Readout, "last", "first-last", "static", "top-tokens"]
MODELS = Option(
    f"open this model: {shared.MODEL_NAMES}, read in its own way, or with ,template=TEMPLATE or "
    ",readout=READOUT after it",
    "MODEL",
    positional=True,
    path="name",
)


SAMPLE = (
    "the sentences of this text file, folder or corpus, or of the scored tasks (the word tasks)"
)
LABEL_COLUMN = "label"
# The options for labelled texts alone, and those for labelled texts and for the file of a sample.
LABELLED_ALONE, READING = ("label_column", "clean"), ("text_column", "encoding", "delimiter")
LABELLED = Option(
    "score how often the text nearest to another has the same label, in this csv, tsv, jsonl or "
    "parquet file or folder",
    "FILE",
    group=SCORES,
    path="input",
    default="no labelled texts",
)
LABELS = Option(
    "read the labels, e.g. categories, from this column of --labelled",
    "COL",
    group=SCORES,
    default=LABEL_COLUMN,
)
SENTEVAL, DEV_PAIRS = (replace(one, group=SCORES) for one in (shared.SENTEVAL, shared.DEV_PAIRS))


@dataclass(frozen=True)
class EvaluateOptions:
    """The texts to score, and the readout of the vectors.

    model: empty in options for several models, from which `options_of_model` makes those of one.
    remove to denoise: as in FeatureOptions.
    """

    model: str = ""
    # Both may be given, unlike in training.
    senteval: Path | None = replace(
        SENTEVAL, help="score the tasks in this SentEval folder", exclusive=""
    ).field(None)
    pairs: Path | None = replace(DEV_PAIRS, exclusive="").field(None)
    tasks: str | None = Option(
        "score these tasks: sts, transfer, or any of STS12 to STS16, STS-B, "
        "SICK-R, MR, CR, SUBJ, MPQA, SST2, TREC and MRPC; or mteb (DenoSent's 15 tasks), or "
        "mteb:NAME,... with names of MTEB or classification, reranking, retrieval, which need "
        "the package mteb and the hub",
        "TASK,...",
        group=SCORES,
        default="sts with --senteval, else the graded pairs",
    ).field(None)
    allow_missing: bool = Option(
        "skip the tasks that the SentEval folder lacks", group=SCORES
    ).field(False)
    template: str | None = replace(
        shared.TEMPLATE, default="the model's own, PromptBERT's with --readout top-tokens"
    ).field(None)
    readout: Readout | None = Option(
        "read the vector at the template's mask, at the first token, as the mean of the last "
        "layer (mean: normalized as the folder says, last: as it is), of the first and last "
        "layer, of the static token embeddings, or of the mask's most likely tokens",
        group=MODEL,
        default="the model's own",
    ).field(None)
    precision: shared.EncoderPrecision = "auto"
    remove: tuple[str, ...] = Option(
        "remove these biases from the static readout: frequent, subwords, case, punctuation "
        "(PromptBERT Table 3)",
        "BIAS,...",
        group=MODEL,
        default="none",
        convert=shared.comma_names,
    ).field(())
    frequent_count: int | None = Option(
        "treat this many tokens as frequent for --remove frequent",
        "N",
        group=MODEL,
        unit="tokens",
        default="36 tokens",
    ).field(None)
    top_k: int | None = Option(
        "average this many tokens for --readout top-tokens",
        "N",
        group=MODEL,
        unit="tokens",
        default="200 tokens",
    ).field(None)
    denoise: choices.Denoise | None = replace(
        shared.DENOISE, default="the model's own, none with --readout top-tokens"
    ).field(None)
    whiten: str | None = Option(
        f"whiten the vectors with the statistics of {SAMPLE}",
        "TEXT",
        group=MODEL,
        path="input",
        default="no whitening",
    ).field(None)
    whiten_dimensions: int | None = Option(
        "keep this many dimensions of the whitened vectors",
        "N",
        group=MODEL,
        unit="dimensions",
        default="all dimensions",
    ).field(None)
    rank: str | None = Option(
        f"represent each sentence by how it ranks, by similarity, {SAMPLE}",
        "TEXT",
        group=MODEL,
        path="input",
        default="no ranking",
    ).field(None)
    flow: str | None = Option(
        f"map the vectors with a normalizing flow fitted to {SAMPLE}",
        "TEXT",
        group=MODEL,
        path="input",
        default="no flow",
    ).field(None)
    resamples: int = Option(
        "compute 95 % intervals of the scores from this many bootstrap resamples; 0 for none",
        "N",
        group=SCORES,
        unit="resamples",
    ).field(1000)
    encoding: str | None = shared.ENCODING.field(None)
    corpus: Path | None = shared.HELD_OUT_CORPUS.field(None)
    labelled: str | None = LABELLED.field(None)
    label_column: str | None = LABELS.field(None)
    text_column: str | None = replace(
        shared.TEXT_COLUMN,
        help="read the texts of --labelled, --whiten, --rank and --flow from this column; "
        "several, e.g. title,body, are joined to one text",
        group=SCORES,
        default="text",
    ).field(None)
    delimiter: str | None = shared.DELIMITER.field(None)
    clean: tuple[str, ...] = replace(CLEAN, help=f"with --labelled, {CLEAN.help}").field(())


@dataclass(frozen=True)
class GeometryOptions:
    """The models, and the texts on which their vectors are compared."""

    models: Annotated[tuple[str, ...], MODELS]
    senteval: Path | None = replace(
        SENTEVAL, help="use the STS-B test pairs in this SentEval folder"
    ).field(None)
    pairs: Path | None = DEV_PAIRS.field(None)
    corpus: str | None = replace(
        shared.TEXT_CORPUS,
        help=f"{shared.TEXT_CORPUS.help}, or of a corpus, whose held-out documents are "
        "searched too",
    ).field(None)
    sentences: int = shared.SENTENCES.field(5_000)
    text_column: str = shared.TEXT_COLUMN.field("text")
    precision: shared.EncoderPrecision = "auto"
    encoding: str | None = shared.ENCODING.field(None)

    def __post_init__(self) -> None:
        only_with("corpus", self, "sentences", "text_column", "encoding")
