"""The papers' results and their source tables, which reports show below the user's results.

They are Spearman x 100 on the seven STS tasks ("all", test), and accuracy on the seven transfer
tasks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.encoder.pooling_config import PoolingConfig
from cotbert_core.evaluation.sts import STS_TASKS
from cotbert_core.evaluation.transfer_data import TRANSFER_TASKS

BERT, ROBERTA = "BERT-base", "RoBERTa-base"
# (model type, hidden size, layers) of the encoders that the papers call base, and a part of their
# names: other encoders of that size, such as bge-base and e5-base, are not in the papers.
_BASE = {
    ("bert", 768, 12): (BERT, "bert-base-uncased"),
    ("roberta", 768, 12): (ROBERTA, "roberta-base"),
}
# SimCSE on triples, which has rows of its own.
SIMCSE_SUPERVISED = "simcse-supervised"
UNTRAINED, UNSUPERVISED, SUPERVISED = "untrained", "unsupervised", "supervised"
_COT, _PROMPT, _DENO = "CoT-BERT Table 2", "PromptBERT Table", "DenoSent Table 1"


@dataclass(frozen=True)
class Published:
    """A row of a paper's table.

    scores: in the order of STS_TASKS or TRANSFER_TASKS. average: as printed. trained_by: the
    method's name in the settings or SIMCSE_SUPERVISED, None if this project lacks it.
    """

    method: str
    backbone: str
    kind: str
    source: str
    scores: tuple[float, ...]
    average: float
    trained_by: str | None = None


def _row(
    method: str, backbone: str, kind: str, source: str, numbers: str, trained_by: str | None = None
) -> Published:
    *scores, average = map(float, numbers.split())
    return Published(method, backbone, kind, source, tuple(scores), average, trained_by)


# fmt: off
STS = (
    _row("[CLS]", BERT, UNTRAINED, _DENO, "21.54 32.11 21.28 37.89 44.24 20.30 42.42 31.40"),
    _row("last layer average", BERT, UNTRAINED, f"{_PROMPT} 5", "30.87 59.89 47.73 60.29 63.73 47.29 58.22 52.57"),
    _row("static average", BERT, UNTRAINED, f"{_PROMPT} 5", "42.38 56.74 50.60 65.08 62.39 56.82 58.15 56.02"),
    _row("first-last average", BERT, UNTRAINED, f"{_PROMPT} 5", "39.70 59.38 49.67 66.03 66.19 53.87 62.06 56.70"),
    _row("static average, biases removed", BERT, UNTRAINED, f"{_PROMPT} 5", "53.09 66.48 65.09 69.80 67.85 61.60 57.80 63.10"),
    _row("whitening", BERT, UNTRAINED, f"{_PROMPT} 5", "57.83 66.90 60.90 75.08 71.31 68.24 63.73 66.28"),
    _row("flow", BERT, UNTRAINED, f"{_PROMPT} 5", "58.40 67.10 60.85 75.16 71.22 68.66 64.47 66.55"),
    _row("manual template", BERT, UNTRAINED, f"{_PROMPT} 5", "60.96 73.83 62.18 71.54 68.68 70.60 67.16 67.85"),
    _row("OptiPrompt", BERT, UNSUPERVISED, f"{_PROMPT} 5", "64.56 79.96 70.05 79.37 75.35 77.25 68.56 73.59", "optiprompt"),
    _row("ConSERT", BERT, UNSUPERVISED, _COT, "64.64 78.49 69.07 79.72 75.95 73.97 67.31 72.74", "consert"),
    _row("SimCSE", BERT, UNSUPERVISED, _COT, "68.40 82.41 74.38 80.91 78.56 76.85 72.23 76.25", "simcse"),
    _row("DCLR", BERT, UNSUPERVISED, _COT, "70.81 83.73 75.11 82.56 78.44 78.31 71.59 77.22", "dclr"),
    _row("ESimCSE", BERT, UNSUPERVISED, _COT, "73.40 83.27 77.25 82.66 78.81 80.17 72.30 78.27", "esimcse"),
    _row("PCL", BERT, UNSUPERVISED, _COT, "72.84 83.81 76.52 83.06 79.32 80.01 73.38 78.42", "pcl"),
    _row("DiffCSE", BERT, UNSUPERVISED, _COT, "72.28 84.43 76.47 83.90 80.54 80.59 71.23 78.49", "diffcse"),
    _row("PromptBERT", BERT, UNSUPERVISED, f"{_PROMPT} 6", "71.56 84.58 76.98 84.47 80.60 81.60 69.87 78.54", "promptbert"),
    _row("ConPVP", BERT, UNSUPERVISED, _COT, "71.72 84.95 77.68 83.64 79.76 80.82 73.38 78.85"),
    _row("SNCSE", BERT, UNSUPERVISED, _DENO, "70.67 84.79 76.99 83.69 80.51 81.35 74.77 78.97", "sncse"),
    _row("DenoSent", BERT, UNSUPERVISED, _DENO, "75.57 83.77 77.24 84.30 79.51 80.81 74.09 79.33", "denosent"),
    _row("CoT-BERT", BERT, UNSUPERVISED, _COT, "72.56 85.53 77.91 85.05 80.94 82.40 71.41 79.40", "cot-bert"),
    _row("RankCSE", BERT, UNSUPERVISED, _COT, "74.38 85.97 77.51 84.46 81.31 81.46 75.26 80.05", "rankcse"),
    _row("RankEncoder", BERT, UNSUPERVISED, _COT, "74.88 85.59 78.61 83.50 80.56 81.55 75.78 80.07"),
    _row("SimCSE", BERT, SUPERVISED, f"{_PROMPT} 6", "75.30 84.67 80.19 85.40 80.82 84.25 80.39 81.57", SIMCSE_SUPERVISED),
    _row("PromptBERT", BERT, SUPERVISED, f"{_PROMPT} 6", "75.48 85.59 80.57 85.99 81.08 84.56 80.52 81.97", "promptbert-supervised"),
    _row("whitening", ROBERTA, UNTRAINED, f"{_PROMPT} 6", "46.99 63.24 57.23 71.36 68.99 61.36 62.91 61.73"),
    _row("SimCSE", ROBERTA, UNSUPERVISED, _COT, "70.16 81.77 73.24 81.36 80.65 80.22 68.56 76.57", "simcse"),
    _row("DCLR", ROBERTA, UNSUPERVISED, _COT, "70.01 83.08 75.09 83.66 81.06 81.86 70.33 77.87", "dclr"),
    _row("ESimCSE", ROBERTA, UNSUPERVISED, _COT, "69.90 82.50 74.68 83.19 80.30 80.99 70.54 77.44", "esimcse"),
    _row("PCL", ROBERTA, UNSUPERVISED, _COT, "71.13 82.38 75.40 83.07 81.98 81.63 69.72 77.90", "pcl"),
    _row("DiffCSE", ROBERTA, UNSUPERVISED, _COT, "70.05 83.43 75.49 82.81 82.12 82.38 71.19 78.21", "diffcse"),
    _row("PromptRoBERTa", ROBERTA, UNSUPERVISED, f"{_PROMPT} 6", "73.94 84.74 77.28 84.99 81.74 81.88 69.50 79.15", "promptbert"),
    _row("ConPVP", ROBERTA, UNSUPERVISED, _COT, "73.20 83.22 76.24 83.37 81.49 82.18 74.59 79.18"),
    _row("RankCSE", ROBERTA, UNSUPERVISED, _COT, "72.91 85.72 76.94 84.52 82.59 83.46 71.94 79.73", "rankcse"),
    _row("CoT-RoBERTa", ROBERTA, UNSUPERVISED, _COT, "75.43 85.47 78.74 85.64 82.21 83.40 73.46 80.62", "cot-bert"),
    _row("SimCSE", ROBERTA, SUPERVISED, f"{_PROMPT} 6", "76.53 85.21 80.95 86.03 82.57 85.83 80.50 82.52"),
    _row("PromptRoBERTa", ROBERTA, SUPERVISED, f"{_PROMPT} 6", "76.75 85.93 82.28 86.69 82.80 86.14 80.04 82.95", "promptbert-supervised"),
)
TRANSFER = (
    _row("last layer average", BERT, UNTRAINED, f"{_PROMPT} 15", "78.66 86.25 94.37 88.66 84.40 92.80 69.54 84.94"),
    _row("[CLS]", BERT, UNTRAINED, f"{_PROMPT} 15", "78.68 84.85 94.21 88.23 84.13 91.40 71.13 84.66"),
    _row("SimCSE", BERT, UNSUPERVISED, f"{_PROMPT} 15", "81.18 86.46 94.45 88.88 85.50 89.80 74.43 85.81", "simcse"),
    _row("PromptBERT", BERT, UNSUPERVISED, f"{_PROMPT} 15", "80.74 85.49 93.65 89.32 84.95 88.20 76.06 85.49", "promptbert"),
    _row("SimCSE", BERT, SUPERVISED, f"{_PROMPT} 15", "82.69 89.25 94.81 89.59 87.31 88.40 73.51 86.51", SIMCSE_SUPERVISED),
    _row("PromptBERT", BERT, SUPERVISED, f"{_PROMPT} 15", "83.14 89.38 94.49 89.93 87.37 87.40 76.58 86.90", "promptbert-supervised"),
    _row("SimCSE", ROBERTA, UNSUPERVISED, f"{_PROMPT} 15", "81.04 87.74 93.28 86.94 86.60 84.60 73.68 84.84", "simcse"),
    _row("PromptRoBERTa", ROBERTA, UNSUPERVISED, f"{_PROMPT} 15", "83.82 88.72 93.19 90.36 88.08 90.60 76.75 87.36", "promptbert"),
    _row("SimCSE", ROBERTA, SUPERVISED, f"{_PROMPT} 15", "84.92 92.00 94.11 89.82 91.27 88.80 75.65 88.08"),
    _row("PromptRoBERTa", ROBERTA, SUPERVISED, f"{_PROMPT} 15", "85.74 91.47 94.81 90.93 92.53 90.40 77.10 89.00", "promptbert-supervised"),
)
# fmt: on

STS_COLUMNS, TRANSFER_COLUMNS = tuple(STS_TASKS), tuple(TRANSFER_TASKS)


def published_backbone(backbone: Backbone, encoder: str) -> str | None:
    """Return BERT-base or RoBERTa-base if size and name are those of one of them.

    encoder: the name from which the encoder was trained.
    """
    config = backbone.model.config
    size = (str(config.model_type), config.hidden_size, config.num_hidden_layers)
    known, name = _BASE.get(size, (None, ""))
    return known if name in encoder else None


def published_method(pooling: PoolingConfig) -> str | None:
    """Return the method by which an encoder was trained, as rows name it; None if unknown."""
    supervised = pooling.method == "simcse" and (pooling.settings or {}).get("method.triples")
    return SIMCSE_SUPERVISED if supervised else pooling.method


def beside(rows: Iterable[Published], backbones: set[str | None]) -> list[Published]:
    """Return the rows for these encoders; for an encoder that is not in the papers (None), the rows
    for BERT-base by methods of this project."""
    return [
        row
        for row in rows
        if row.backbone in backbones
        or (None in backbones and row.backbone == BERT and row.trained_by is not None)
    ]
