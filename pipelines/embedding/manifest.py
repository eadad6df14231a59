"""The contents of manifest.json and result.json of an embeddings folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from cotbert_core.encoder.locations import locate_encoder
from cotbert_core.messages.redaction import without_credentials
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.templates.vocabulary_fit import CHARACTERS, TOKENS, UNKNOWN, WORDS
from pipelines.embedding.blocks import BlockLedger
from pipelines.embedding.options import EmbedOptions
from pipelines.reading.read_plan import READING, ReadPlan
from pipelines.storage.resumable_output import versions

# The counts of vocabulary_counts, which an update adds to its own.
VOCABULARY_KEYS = (TOKENS, UNKNOWN, CHARACTERS, WORDS)


def manifest(
    options: EmbedOptions,
    plan: ReadPlan,
    metadata: dict[str, Any],
    ledger: BlockLedger,
    warnings: Sequence[str] = (),
    update: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Return the manifest, which is the same for the same input, options and versions."""
    counts = ledger.counts
    return {
        "format": 2,
        "rows": counts["rows"],
        "skipped": ledger.skipped,
        **({"warnings": list(warnings)} if warnings else {}),
        "duplicates": counts["duplicates"],
        "truncated": counts["truncated"],
        "split": counts["split"],
        **({"passages": counts["passages"]} if options.passages else {}),
        "vocabulary": {key: counts[key] for key in VOCABULARY_KEYS},
        **described(options, plan, metadata),
        # The formats in which the encoder computed, where the options say "auto".
        "precision": ", ".join(sorted(ledger.precisions)) or options.precision,
        **({"update": dict(update)} if update is not None else {}),
        **{k: v for k in READING if (v := getattr(options, k))},
        "inputs": sorted(set(without_credentials(options.inputs))),
        "text_column": options.text_column,
        "files": len(plan.files),
        "files_ignored": plan.ignored,
        "versions": versions(),
    }


def described(options: EmbedOptions, plan: ReadPlan, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest's entries that vectors and columns of two jobs must share to be put
    together."""
    return {
        **metadata,
        "precision": options.precision,
        "id_column": plan.id_column,
        "id_type": plan.id_type,
        "keep": list(options.keep),
        "passage_words": options.passages,
        **({"clean": list(options.clean)} if options.clean else {}),
        **({"documents": options.documents} if options.documents else {}),
    }


def result(ledger: BlockLedger, dimension: int, workers: int, seconds: float) -> dict[str, Any]:
    """Return the result of the job; rate, seconds and workers are those of this run."""
    counts = ledger.counts
    return {
        "rows": counts["rows"],
        "skipped": sum(ledger.skipped.values()),
        **{f"skipped_{reason}": n for reason, n in ledger.skipped.items()},
        "duplicates": counts["duplicates"],
        "truncated": counts["truncated"],
        **{key: counts[key] for key in ("split", "passages") if counts[key]},
        "dimension": dimension,
        "rows_of_this_run": ledger.new_rows,
        "sentences_per_second": round(ledger.rate, 1),
        "seconds": round(seconds, 3),
        "workers": workers,
    }


def precision_warnings(precisions: Set[str]) -> list[str]:
    """Return a warning if the vectors were not all computed in the same number format."""
    if not {"bf16", "fp32"} <= precisions:
        return []
    return [
        "some vectors were computed in bf16 and others in fp32, which --precision auto chooses by "
        "the machine: where small differences matter, embed all rows with one --precision"
    ]


def model_commit(encoder: SentenceEncoder) -> str | None:
    """Return the commit that a hub name stood for when the model was loaded; None for a folder."""
    from huggingface_hub import try_to_load_from_cache

    location = locate_encoder(encoder.backbone.name)
    if Path(location).is_dir():
        return None
    # The cache keeps the files of each commit in a folder of its name.
    found = try_to_load_from_cache(location, "config.json")
    return Path(found).parent.name if isinstance(found, str) else None
