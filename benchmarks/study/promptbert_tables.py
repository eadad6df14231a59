"""The tables and figures of PromptBERT, a row for each line."""

from __future__ import annotations

from benchmarks.study.rows import (
    FIRST_LAST,
    GEOMETRY,
    SIMCSE,
    Ours,
    Row,
    read,
    readout,
    trained,
)

TWO = trained("promptbert-base")
STATIC = readout("static")
MANUAL = readout("manual")


def _transfer(what: str, recipe: str, paper: str, against: str = "") -> Row:
    return Row(
        f"15: {what}, transfer tasks, average of seven",
        f"cotbert train {recipe} TRAIN`, `cotbert evaluate OUT/model T --tasks transfer",
        paper,
        Ours("transfer", recipe),
        Ours("transfer", against) if against else None,
    )


ROWS = (
    read("1, 5: static average", "--readout static", "56.02", "static"),
    read("1: last layer average", "--readout last", "52.57", "last", STATIC),
    Row(
        "1, 2: anisotropy of sentences, static; last; of the token table (uncased)",
        "cotbert geometry bert-base-uncased,readout=static bert-base-uncased,readout=last "
        "--senteval DIR --output OUT",
        "0.8250; 0.4874; 0.4445",
        GEOMETRY,
    ),
    read(
        "3: biases removed: frequent tokens",
        "--readout static --remove frequent",
        "59.65",
        "static-1",
        STATIC,
    ),
    read(
        "3: and subwords",
        "--readout static --remove frequent,subwords",
        "62.20",
        "static-2",
        readout("static-1"),
    ),
    read(
        "3: and upper case (an uncased encoder has none)",
        "--readout static --remove frequent,subwords,case",
        "",
        "static-3",
    ),
    read(
        "3: and punctuation",
        "--readout static --remove frequent,subwords,case,punctuation",
        "63.10",
        "static-4",
        readout("static-2"),
    ),
    Row(
        "4: greedy search (STS-B dev)",
        "cotbert search-template bert-base-uncased T --output OUT",
        "39.34 to 73.44",
        "[below](#template-search)",
    ),
    Row(
        "section 4.2: templates by T5 (best, STS-B dev)",
        "cotbert generate-templates t5-large --definitions FILE --output generated.txt`, "
        "`cotbert search-template bert-base-uncased T --templates generated.txt --output OUT",
        "64.75",
        "needs t5-large",
    ),
    read("5: first-last average", "--readout first-last", "56.70", "first-last", STATIC),
    read(
        "5: BERT-whitening; 6: RoBERTa-whitening",
        "--readout first-last --whiten TEXT",
        "66.28 / 61.73",
        "whitening",
        FIRST_LAST,
    ),
    read("5: manual template", "--template promptbert/manual", "67.85", "manual", FIRST_LAST),
    Row(
        "5: OptiPrompt",
        "cotbert train optiprompt-base TRAIN",
        "73.59",
        trained("optiprompt-base"),
        MANUAL,
    ),
    Row(
        "6, 10: unsupervised, ten seeds (mean; BERT: most 78.86, least 78.33)",
        "cotbert train promptbert-base TRAIN --seeds 10`, `cotbert train promptroberta-base "
        "TRAIN --seeds 10",
        "78.54 ± 0.15 / 79.15 ± 0.25",
        TWO,
        SIMCSE,
    ),
    Row(
        "10: SimCSE, ten seeds (most 76.64, least 73.50)",
        "cotbert train simcse-base TRAIN --seeds 10",
        "75.42",
        SIMCSE,
    ),
    Row(
        "6: supervised PromptBERT",
        "cotbert train promptbert-supervised --corpus nli_for_simcse.csv --senteval DIR "
        "--output OUT`, `cotbert train promptroberta-supervised --corpus nli_for_simcse.csv "
        "--senteval DIR --output OUT",
        "81.97 / 82.95",
        trained("promptbert-supervised"),
        trained("simcse-supervised"),
    ),
    Row(
        "6: supervised SimCSE (BERT)",
        "cotbert train simcse-supervised --corpus nli_for_simcse.csv --senteval DIR --output OUT",
        "81.57",
        trained("simcse-supervised"),
    ),
    Row(
        "7: top-5 tokens",
        "cotbert tokens bert-base-uncased",
        "words",
        "[below](#predicted-tokens)",
    ),
    Row(
        "8: same template, dropout",
        "--set templates.positive=promptbert/anchor --set method.denoise=none",
        "78.16 ± 0.17 / 78.16 ± 0.44",
        trained("one-template"),
        TWO,
    ),
    Row(
        "8: two templates",
        "--set method.denoise=none",
        "78.19 ± 0.29 / 78.17 ± 0.44",
        trained("two-templates"),
        TWO,
    ),
    Row("8: two templates, denoised", "cotbert train promptbert-base TRAIN", "78.54", TWO),
    read(
        "9: top-200 tokens",
        "--readout top-tokens --template promptbert/manual",
        "56.19",
        "top-tokens",
        MANUAL,
    ),
    read(
        "9: the same, denoised",
        "--readout top-tokens --template promptbert/manual --denoise position",
        "60.39",
        "top-tokens-denoised",
        readout("top-tokens"),
    ),
    read("9: mask", "--template promptbert/manual", "67.85", "manual"),
    read(
        "9: mask, denoised",
        "--template promptbert/manual --denoise position",
        "67.43",
        "manual-denoised",
        MANUAL,
    ),
    Row(
        "11: the 36 frequent tokens",
        "cotbert evaluate bert-base-uncased --readout static --remove frequent T",
        "words",
        "counted in the scored sentences",
    ),
    Row(
        "12: tied and untied pre-training",
        "",
        "43.33 to 49.41",
        "a pretraining here ties the table and the head",
    ),
    Row("13, 14: templates, settings", "cotbert recipes promptbert-base"),
    _transfer("SimCSE", "simcse-base", "85.81 / 84.84"),
    _transfer("PromptBERT", "promptbert-base", "85.49 / 87.36", "simcse-base"),
    Row(
        "Figure 1: token embeddings by bias",
        "cotbert token-map bert-base-uncased --corpus TEXT --output OUT",
        "pictures",
        "in the report of the command",
    ),
    Row(
        "Figure 2: the output weights too",
        "cotbert token-map MODEL --table head --output OUT",
        "pictures",
        "in the report of the command",
    ),
)
