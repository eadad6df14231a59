"""The documents after the second pass: their number and sizes, and the held-out file."""

from __future__ import annotations

from collections import Counter
from typing import Any

from cotbert_core.errors import UserError
from pipelines.preparing.document_rows import document_sizes, giant_warning, many_documents_warning
from pipelines.preparing.hold_out import write_held_out
from pipelines.preparing.options import PrepareOptions
from pipelines.reading.data_folder import part_files
from pipelines.reading.manifests import HELD_OUT_FILE
from pipelines.storage.resumable_output import ResumableOutput


def finish_documents(
    options: PrepareOptions, counts: Counter[str], work: ResumableOutput
) -> tuple[dict[str, Any], Counter[int], list[str]]:
    """Write the held-out file if rows were held out.

    Returns entries of the manifest, the number of documents with 1, 2, ... sentences, and warnings.
    counts: of all rows. Raises UserError if no document has two sentences.
    """
    entries: dict[str, Any] = {}
    held_out = queries = 0
    if options.hold_out is not None:
        files = sorted(work.scratch.glob("part-*.held"))
        if files:
            held_out, queries = write_held_out(files, work.output / HELD_OUT_FILE, work.scratch)
        entries["held_out"] = held_out
    if options.documents is None:
        return entries, Counter(), []
    sizes = document_sizes(part_files(work.output), work.scratch)
    repeated = many_documents_warning(counts)
    if max(sizes) < 2:
        raise UserError(
            f"documents is {options.documents!r} and each of the {sizes[1]:,} documents is a "
            "single sentence: name other documents, or leave out --documents"
            + "".join(f" ({warning})" for warning in repeated)
        )
    entries["documents"] = {
        "by": options.documents,
        "documents": sum(sizes.values()),
        "one_sentence": sizes[1],
        "held_out": held_out,
        **({"queries": queries} if options.queries else {}),
    }
    return entries, sizes, [*giant_warning(sizes), *repeated]
