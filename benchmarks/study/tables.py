"""The tables of the three papers: a row for each, with its command and the paper's number.

In a command TRAIN stands for the corpus, the SentEval folder and the output, T for the SentEval
folder; one that begins with an option continues the recipe of its paper, or `cotbert evaluate`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

COT, PROMPT, DENO = "CoT-BERT", "PromptBERT", "DenoSent"


class Ours(NamedTuple):
    """Where the study's own number stands: a part of its record, and a name in it."""

    part: str
    name: str


def trained(name: str) -> Ours:
    return Ours("trained", name)


def readout(name: str) -> Ours:
    return Ours("readouts", name)


@dataclass(frozen=True)
class Row:
    """what: the table or figure and its row. paper: the number, of BERT / of RoBERTa. ours: what
    stands beside it, or a text. against: the row whose order with this one the paper shows."""

    what: str
    command: str
    paper: str = ""
    ours: Ours | str = ""
    against: Ours | None = None

    @property
    def published(self) -> float | None:
        """The paper's number, of BERT where it gives two."""
        first = self.paper.split("/")[0].split(",")[0].split("±")[0].strip()
        try:
            return float(first)
        except ValueError:
            return None


SIMCSE, WHOLE = trained("simcse-base"), trained("cot-bert-base")
TWO, REST = trained("promptbert-base"), trained("rest")
FIRST_LAST, STATIC, MANUAL = readout("first-last"), readout("static"), readout("manual")


def _method(what: str, recipe: str, paper: str, more: str = "") -> Row:
    return Row(what, f"cotbert train {recipe} TRAIN{more}", paper, trained(recipe), SIMCSE)


def _stage(what: str, name: str, paper: str) -> Row:
    roles = " ".join(
        f"--set templates.{role}=cot-bert/{name}/{role}"
        for role in ("anchor", "positive", "negative")
    )
    return Row(f"3: {what}", roles, paper, trained(name), WHOLE)


def _transfer(what: str, recipe: str, paper: str, against: str = "") -> Row:
    return Row(
        f"15: {what}, transfer tasks, average of seven",
        f"cotbert train {recipe} TRAIN`, `cotbert evaluate OUT/model T --tasks transfer",
        paper,
        Ours("transfer", recipe),
        Ours("transfer", against) if against else None,
    )


def _read(what: str, options: str, paper: str, name: str, against: Ours | None = None) -> Row:
    return Row(
        what, f"cotbert evaluate bert-base-uncased {options} T", paper, readout(name), against
    )


NO_HUB = "needs a file that is not to be had here"
GEOMETRY = "[below](#geometry)"

TABLES: dict[str, tuple[Row, ...]] = {
    COT: (
        Row("1: the templates", "cotbert templates"),
        Row(
            "2: CoT-BERT",
            "cotbert train cot-bert-base TRAIN`, `cotbert train cot-roberta-base TRAIN",
            "79.40 / 80.62",
            WHOLE,
            SIMCSE,
        ),
        _method("2: PromptBERT", "promptbert-base", "78.54 / 79.15"),
        Row(
            "2: SimCSE",
            "cotbert train simcse-base TRAIN`, `cotbert train simcse-roberta-base TRAIN",
            "76.25 / 76.57",
            SIMCSE,
        ),
        _method("2: ConPVP (its loss, CoT-BERT's templates)", "conpvp-base", "78.85 / 79.18"),
        _read("2: BERT-flow", "--readout first-last --flow TEXT", "66.55", "flow", FIRST_LAST),
        _read(
            "2: BERT-whitening",
            "--readout first-last --whiten TEXT",
            "66.28",
            "whitening",
            FIRST_LAST,
        ),
        _method("2: ConSERT", "consert-base", "72.74"),
        _method("2: DCLR", "dclr-base", "77.22 / 77.87"),
        _method("2: ArcCSE", "arccse-base", "78.11"),
        _method("2: ESimCSE", "esimcse-base", "78.27 / 77.44"),
        _method("2: DiffCSE", "diffcse-base", "78.49 / 78.21"),
        _method("2: PCL", "pcl-base", "78.42 / 77.90"),
        _method("2: PromCSE", "promcse-base", "78.49"),
        _method("2: SNCSE (DenoSent's Table 1)", "sncse-base", "78.97"),
        Row(
            "2: RankEncoder, on another encoder",
            "cotbert evaluate MODEL --rank TEXT T",
            "80.07",
            readout("ranks"),
            readout("last"),
        ),
        _method(
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
    ),
    PROMPT: (
        _read("1, 5: static average", "--readout static", "56.02", "static"),
        _read("1: last layer average", "--readout last", "52.57", "last", STATIC),
        Row(
            "1, 2: anisotropy of sentences, static; last; of the token table (uncased)",
            "cotbert geometry bert-base-uncased,readout=static bert-base-uncased,readout=last "
            "--senteval DIR --output OUT",
            "0.8250; 0.4874; 0.4445",
            GEOMETRY,
        ),
        _read(
            "3: biases removed: frequent tokens",
            "--readout static --remove frequent",
            "59.65",
            "static-1",
            STATIC,
        ),
        _read(
            "3: and subwords",
            "--readout static --remove frequent,subwords",
            "62.20",
            "static-2",
            readout("static-1"),
        ),
        _read(
            "3: and upper case (an uncased encoder has none)",
            "--readout static --remove frequent,subwords,case",
            "",
            "static-3",
        ),
        _read(
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
        _read("5: first-last average", "--readout first-last", "56.70", "first-last", STATIC),
        _read(
            "5: BERT-whitening; 6: RoBERTa-whitening",
            "--readout first-last --whiten TEXT",
            "66.28 / 61.73",
            "whitening",
            FIRST_LAST,
        ),
        _read("5: manual template", "--template promptbert/manual", "67.85", "manual", FIRST_LAST),
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
            "cotbert train simcse-supervised --corpus nli_for_simcse.csv --senteval DIR "
            "--output OUT",
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
        _read(
            "9: top-200 tokens",
            "--readout top-tokens --template promptbert/manual",
            "56.19",
            "top-tokens",
            MANUAL,
        ),
        _read(
            "9: the same, denoised",
            "--readout top-tokens --template promptbert/manual --denoise position",
            "60.39",
            "top-tokens-denoised",
            readout("top-tokens"),
        ),
        _read("9: mask", "--template promptbert/manual", "67.85", "manual"),
        _read(
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
    ),
    DENO: (
        Row(
            "1: DenoSent (on documents, whose rest takes the place of back-translations)",
            "cotbert train denosent-base TRAIN --set method.positive=rest",
            "79.33",
            REST,
        ),
        _method("1: DenoSent, the paper's settings, on sentences", "denosent-paper", "77.99"),
        _method("3: DenoSent without back-translations, on sentences", "denosent-base", "77.99"),
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
        _read("1: BERT, [CLS]", "--readout cls", "31.40", "cls", FIRST_LAST),
        _read("1: mean", "--readout last", "52.57", "last", FIRST_LAST),
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
    ),
}
