"""The contents of a corpus folder's manifest.json and result.json."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cotbert_core.messages.redaction import without_credentials
from cotbert_core.templates.tokenizing import SentenceTokenizer
from pipelines.cleaning.options import CleanOptions
from pipelines.preparing.driver import FirstPass
from pipelines.preparing.exclusion import HIT
from pipelines.preparing.options import PrepareOptions
from pipelines.preparing.scratch_files import CHANGED, DROPPED
from pipelines.preparing.shard_tasks import Rules
from pipelines.reading import sources
from pipelines.reading.bad_rows import with_prefix
from pipelines.reading.read_plan import READING, ReadPlan
from pipelines.storage.resumable_output import versions


@dataclass(frozen=True)
class CorpusJob:
    """Everything that determines the contents of a corpus."""

    options: PrepareOptions
    plan: ReadPlan
    rules: Rules
    tokenizer: SentenceTokenizer

    @cached_property
    def stamps(self) -> dict[str, list[int]]:
        """[size, time] of each file of the input, which storage elsewhere is asked for once."""
        return sources.stamps(self.plan)


def corpus_manifest(
    job: CorpusJob,
    first_pass: FirstPass,
    counts: Counter[str],
    documents: Mapping[str, Any],
    warnings: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the manifest: the counts of all rows by outcome, and the corpus's source.

    documents: the entries about documents.
    """
    options, plan = job.options, job.plan
    hits = sum(key.startswith(HIT) for key in counts)
    return {
        "format": 1,
        "columns": list(plan.columns),
        "rows_read": counts["read"],
        "rows": counts["rows"],
        "added": counts["added"],
        "changed": with_prefix(counts, CHANGED),
        "dropped": with_prefix(counts, DROPPED),
        "sampled_out": counts["sampled_out"],
        **({"exclude_hits": hits} if options.exclude else {}),
        **documents,
        **({"warnings": list(warnings)} if warnings else {}),
        "truncated": counts["truncated"],
        "tokens": counts["tokens"],
        "encoder": options.encoder,
        "tokenizer_hash": job.tokenizer.hash,
        "max_length": options.max_length,
        "source": {
            "inputs": sorted(set(without_credentials(options.inputs))),
            "files": len(plan.files),
            "files_ignored": plan.ignored,
            "files_without_rows": sum(not first_pass.lost.read[name] for name in plan.files),
            "text_column": options.text_column,
            **{k: v for k in READING if (v := getattr(options, k))},
            "augmented_column": options.augmented_column,
            "negative_column": options.negative_column,
            "sample": options.sample,
            "near_duplicates": options.near_duplicates,
            "exclude": sorted(set(options.exclude)),
            "exclude_sentences": len(job.rules.excluded),
            **({"query": options.query} if options.hold_out else {}),
            "cleaning": cleaning(options.clean),
        },
        "versions": versions(),
    }


def corpus_result(manifest: dict[str, Any], fresh: int, seconds: float) -> dict[str, Any]:
    """Return the result of a job. fresh: number of rows that this run wrote in `seconds`."""
    documents = manifest.get("documents", {})
    return {
        "rows_read": manifest["rows_read"],
        "rows": manifest["rows"],
        **({"added": manifest["added"]} if manifest["added"] else {}),
        **{f"changed_{step}": n for step, n in manifest["changed"].items()},
        **{f"dropped_{reason}": n for reason, n in manifest["dropped"].items()},
        "sampled_out": manifest["sampled_out"],
        **{key: manifest[key] for key in ("exclude_hits", "held_out") if key in manifest},
        **{key: documents[key] for key in ("documents", "one_sentence") if key in documents},
        **({"warnings": len(manifest["warnings"])} if "warnings" in manifest else {}),
        "truncated": manifest["truncated"],
        "files_ignored": manifest["source"]["files_ignored"],
        "files_without_rows": manifest["source"]["files_without_rows"],
        "rows_of_this_run": fresh,
        "seconds": round(seconds, 3),
        "sentences_per_second": round(fresh / seconds, 1),
    }


def cleaning(options: CleanOptions) -> dict[str, Any]:
    """Return the cleaning options that are in use."""
    chosen = {key: value for key, value in vars(options).items() if value not in (None, ())}
    if not options.language:
        del chosen["language_probability"]
    return chosen
