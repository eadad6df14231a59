"""The tables of the three papers."""

from __future__ import annotations

from benchmarks.study import cot_bert_tables, denosent_tables, promptbert_tables

TABLES = {
    "CoT-BERT": cot_bert_tables.ROWS,
    "PromptBERT": promptbert_tables.ROWS,
    "DenoSent": denosent_tables.ROWS,
}
