"""The tables and figures of DenoSent, a row for each line."""

from __future__ import annotations

from benchmarks.study.rows import FIRST_LAST, NO_HUB, Row, method, read, trained

REST = trained("rest")


ROWS = (
    Row(
        "1: DenoSent (on documents, whose rest takes the place of back-translations)",
        "cotbert train denosent-base TRAIN --set method.positive=rest",
        "79.33",
        REST,
    ),
    method("1: DenoSent, the paper's settings, on sentences", "denosent-paper", "77.99"),
    method("3: DenoSent without back-translations, on sentences", "denosent-base", "77.99"),
    Row(
        "1, 3: contrastive only, without denoising",
        "--set method.objective=contrastive",
        "77.96",
        trained("rest-contrastive"),
        REST,
    ),
    Row(
        "1, 3: generative only, without contrast",
        "--set method.objective=generative",
        "76.19",
        trained("rest-generative"),
        REST,
    ),
    read("1: BERT, [CLS]", "--readout cls", "31.40", "cls", FIRST_LAST),
    read("1: mean", "--readout last", "52.57", "last", FIRST_LAST),
    Row(
        "1: TSDAE, not in the paper's table",
        "cotbert train tsdae-base TRAIN",
        "",
        trained("tsdae-base"),
    ),
    Row("1: CMLM, PaSeR, InferSent and others", "", "65.01 to 78.90", NO_HUB),
    Row(
        "2: MTEB classification, average of ten",
        "cotbert evaluate OUT/model --tasks mteb:classification",
        "64.46",
        "needs MTEB's data",
    ),
    Row(
        "Figure 3: MTEB reranking, QuoraRetrieval",
        "cotbert evaluate OUT/model --tasks mteb:reranking,retrieval",
        "a picture",
        "needs MTEB's data",
    ),
    Row(
        "3: an LLM's rewrites",
        "cotbert train denosent-base TRAIN --augmented-column NAME",
        "78.98",
        "needs a language model that rewrites",
    ),
    Row(
        "3: without discrete noise",
        "--set method.positive=dropout",
        "77.99",
        trained("dropout"),
        REST,
    ),
    Row(
        "3: without denoising and discrete noise",
        "--set method.positive=dropout --set method.objective=contrastive",
        "76.17",
        trained("dropout-contrastive"),
        REST,
    ),
    Row(
        "3: without contrast and discrete noise",
        "--set method.positive=dropout --set method.objective=generative",
        "74.54",
        trained("dropout-generative"),
        REST,
    ),
    Row(
        "3: [CLS]",
        "--set method.readout=cls --set templates.anchor=null",
        "78.66",
        trained("rest-cls"),
        REST,
    ),
    Row("Figures 1, 2: the method, the noise", "", "", "[methods.md](methods.md#denosent)"),
    *(
        Row(
            f"Figure 4a: {n} attention heads",
            f"--set method.heads={n}",
            "fewer are better",
            trained(f"heads-{n}"),
        )
        for n in (2, 4, 8)
    ),
    *(
        Row(
            f"Figure 4b: dropout {p}",
            f"--set method.dropout={p}",
            "best inside",
            trained(f"dropout-{p}"),
        )
        for p in (0.8, 0.85, 0.875, 0.9)
    ),
    *(
        Row(
            f"section Implementation: {n} layers",
            f"--set method.layers={n}",
            "16 chosen",
            trained(f"layers-{n}"),
        )
        for n in (12, 14)
    ),
)
