"""The tables and figures of CoT-BERT, a row for each line."""

from __future__ import annotations

from benchmarks.study.rows import (
    FIRST_LAST,
    GEOMETRY,
    NO_HUB,
    SIMCSE,
    Row,
    method,
    read,
    readout,
    trained,
)

WHOLE = trained("cot-bert-base")


def _stage(what: str, name: str, paper: str) -> Row:
    roles = " ".join(
        f"--set templates.{role}=cot-bert/{name}/{role}"
        for role in ("anchor", "positive", "negative")
    )
    return Row(f"3: {what}", roles, paper, trained(name), WHOLE)


ROWS = (
    Row("1: the templates", "cotbert templates"),
    Row(
        "2: CoT-BERT",
        "cotbert train cot-bert-base TRAIN`, `cotbert train cot-roberta-base TRAIN",
        "79.40 / 80.62",
        WHOLE,
        SIMCSE,
    ),
    method("2: PromptBERT", "promptbert-base", "78.54 / 79.15"),
    Row(
        "2: SimCSE",
        "cotbert train simcse-base TRAIN`, `cotbert train simcse-roberta-base TRAIN",
        "76.25 / 76.57",
        SIMCSE,
    ),
    method("2: ConPVP (its loss, CoT-BERT's templates)", "conpvp-base", "78.85 / 79.18"),
    read("2: BERT-flow", "--readout first-last --flow TEXT", "66.55", "flow", FIRST_LAST),
    read(
        "2: BERT-whitening",
        "--readout first-last --whiten TEXT",
        "66.28",
        "whitening",
        FIRST_LAST,
    ),
    method("2: ConSERT", "consert-base", "72.74"),
    method("2: DCLR", "dclr-base", "77.22 / 77.87"),
    method("2: ArcCSE", "arccse-base", "78.11"),
    method("2: ESimCSE", "esimcse-base", "78.27 / 77.44"),
    method("2: DiffCSE", "diffcse-base", "78.49 / 78.21"),
    method("2: PCL", "pcl-base", "78.42 / 77.90"),
    method("2: PromCSE", "promcse-base", "78.49"),
    method("2: SNCSE (DenoSent's Table 1)", "sncse-base", "78.97"),
    Row(
        "2: RankEncoder, on another encoder",
        "cotbert evaluate MODEL --rank TEXT T",
        "80.07",
        readout("ranks"),
        readout("last"),
    ),
    method(
        "2: RankCSE, ListNet",
        "rankcse-base",
        "80.05 / 79.73",
        " --set method.distillation=listnet",
    ),
    Row("2: GloVe, USE, IS-BERT", "", "61.32 to 66.58", NO_HUB),
    _stage("only prefix", "only-prefix", "78.91"),
    _stage("only suffix", "only-suffix", "78.83"),
    _stage("irrelevant prefix", "irrelevant-prefix", "78.44"),
    _stage("static prefix", "static-prefix", "78.91"),
    _stage("suffix + prefix", "reversed", "78.46"),
    Row("3: prefix + suffix", "cotbert train cot-bert-base TRAIN", "79.40", WHOLE),
    Row(
        "3, 4, 6: all of these at once, with seeds",
        "cotbert tune cot-bert-ablations TRAIN --seeds 10",
    ),
    Row(
        "4: without a(i+,j-)",
        "--set method.extended=false",
        "79.11 / 80.30",
        trained("conpvp-base"),
        WHOLE,
    ),
    Row(
        "5: alignment, uniformity (RoBERTa) of PromptBERT; CoT-BERT without; with a(i+,j-)",
        "cotbert geometry A/model B/model C/model --senteval DIR --output OUT",
        "0.0957, -1.2033; 0.1089, -1.3852; 0.1278, -1.5492",
        GEOMETRY,
    ),
    Row(
        "6: no denoising",
        "--set method.denoise=none",
        "78.69 / 79.87",
        trained("no-denoising"),
        WHOLE,
    ),
    Row(
        "6: position",
        "--set method.denoise=position",
        "78.89 / 79.95",
        trained("position-denoising"),
        WHOLE,
    ),
    Row("6: [PAD]", "cotbert train cot-bert-base TRAIN", "79.40 / 80.62", WHOLE),
    Row(
        "section 5.2: three stages",
        "cotbert tune templates TRAIN",
        "no number",
        trained("three-stages"),
    ),
    Row("Figures 1, 2: the losses, the denoising", "", "", "[methods.md](methods.md#losses)"),
    Row(
        "Figure 3: gold score against cosine",
        "cotbert geometry roberta-base,readout=cls PROMPT/model COT/model --senteval DIR "
        "--output OUT",
        "a picture",
        "in the report of the command",
    ),
)
