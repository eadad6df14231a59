"""cotbert prepare: its options, and the call they become."""

from __future__ import annotations

import argparse
from typing import Any

from cotbert_core.errors import UserError
from pipelines.commands.options import Arguments, job_options
from pipelines.commands.printing import print_result


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--input",
        nargs="+",
        required=True,
        metavar="PATH",
        help="files (txt csv tsv jsonl, also .gz or .zst, and parquet), folders, globs, s3:// and "
        "gs:// addresses of these, docstrings:PACKAGE,..., sick:DIR (triples out of "
        "SICK_train.txt), hf:NAME[:CONFIG][:SPLIT]",
    )
    command.add_argument("--encoder", required=True, metavar="NAME", help="whose tokenizer to use")
    command.add_argument("--max-length", type=int, default=32, help="tokens kept of a sentence")
    command.add_argument(
        "--text-column", metavar="COL", help="of csv, tsv, jsonl, parquet (default: text)"
    )
    command.add_argument(
        "--augmented-column", metavar="COL", help="another text of the same meaning, for each text"
    )
    command.add_argument(
        "--negative-column", metavar="COL", help="a text that only looks alike, for each text"
    )
    command.add_argument(
        "--triples",
        action="store_true",
        help="short for --text-column sent0 --augmented-column sent1 --negative-column hard_neg",
    )
    command.add_argument(
        "--exclude",
        nargs="+",
        default=[],
        metavar="FILE",
        help="keep these sentences out, e.g. those of an evaluation set: text files, csv, tsv, or "
        "folders of them; compared without case, punctuation and white space",
    )
    command.add_argument(
        "--near-duplicates",
        type=float,
        metavar="SIMILARITY",
        help="of rows whose 5-letter pieces overlap so much (Jaccard, e.g. 0.8) keep one",
    )
    command.add_argument("--sample", type=int, metavar="N", help="keep N sentences, same every run")
    command.add_argument(
        "--on-invalid",
        default="drop",
        choices=("drop", "fail"),
        help="rows that are no UTF-8, no JSON or no text: count and drop them, or stop",
    )
    job_options(command, "new folder for the corpus")


def run(arguments: Arguments) -> None:
    from pipelines.prepare import PrepareOptions, prepare

    options = PrepareOptions(
        tuple(arguments.input),
        arguments.encoder,
        arguments.max_length,
        sample=arguments.sample,
        on_invalid=arguments.on_invalid,
        exclude=tuple(arguments.exclude),
        near_duplicates=arguments.near_duplicates,
        **_columns(arguments),
    )
    result = prepare(options, arguments.output, arguments.verbose)
    print(rows_table(result), end="\n\n")
    print_result(result)


def rows_table(result: dict[str, Any]) -> str:
    """Where the rows that were read went, as a table for a terminal."""
    from pipelines.corpus_report import row_counts
    from pipelines.progress import table

    return table(row_counts(result), ("rows", "number", "share"))


def _columns(arguments: Arguments) -> dict[str, str]:
    """The columns that are named, by one option each or by --triples."""
    from cotbert_core.batch import COLUMNS
    from pipelines.sources import COLUMN_OPTIONS, TRIPLES

    names = [f"{name}_column" for name in ("text", *COLUMNS)]
    given = {n: getattr(arguments, n) for n in names if getattr(arguments, n) is not None}
    if not arguments.triples:
        return given
    if given:
        option = COLUMN_OPTIONS[names.index(next(iter(given)))]
        raise UserError(f"--triples names all three columns: leave out {option} or --triples")
    return dict(zip(names, TRIPLES, strict=True))
