"""cotbert prepare: its options, and the call they become."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from cotbert_core.errors import UserError
from pipelines.commands.options import Arguments, encoding_option, job_options, names_of
from pipelines.commands.printing import print_result
from pipelines.runtime.progress import show

if TYPE_CHECKING:
    from pipelines.cleaning.options import CleanOptions


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
    encoding_option(command, "the input")
    command.add_argument("--encoder", required=True, metavar="NAME", help="whose tokenizer to use")
    command.add_argument(
        "--max-length",
        type=int,
        default=32,
        help="tokens kept of a sentence, at most those of the encoder",
    )
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
    _cleaning_options(command)
    command.add_argument("--sample", type=int, metavar="N", help="keep N sentences, same every run")
    command.add_argument(
        "--on-invalid",
        default="drop",
        choices=("drop", "fail"),
        help="rows that are no UTF-8, no JSON or no text: count and drop them, or stop",
    )
    job_options(command, "new folder for the corpus")


def _cleaning_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--clean",
        metavar="STEP,...",
        help="wikitext, markup, urls, control, unicode: what is mended in texts, or taken out",
    )
    command.add_argument(
        "--split", metavar="LANGUAGE", help="running text to sentences, e.g. en (extra: split)"
    )
    command.add_argument("--min-tokens", type=int, metavar="N", help="drop shorter sentences")
    command.add_argument("--max-tokens", type=int, metavar="N", help="drop longer sentences")
    command.add_argument(
        "--max-non-letters",
        type=float,
        metavar="SHARE",
        help="drop what has a larger share, 0 to 1, of characters that are no letters nor blanks",
    )
    command.add_argument(
        "--repeated",
        type=float,
        metavar="SHARE",
        help="drop what consists of one word in a larger share, 0 to 1",
    )
    command.add_argument(
        "--language",
        metavar="CODE,...",
        help="keep these languages alone, e.g. en,de (extra: language)",
    )
    command.add_argument(
        "--language-probability",
        type=float,
        default=0.5,
        metavar="P",
        help="drop what is in no language so probably, 0 to 1",
    )


def run(arguments: Arguments) -> None:
    from pipelines.prepare import prepare
    from pipelines.preparing.options import PrepareOptions

    options = PrepareOptions(
        tuple(arguments.input),
        arguments.encoder,
        arguments.max_length,
        sample=arguments.sample,
        on_invalid=arguments.on_invalid,
        exclude=tuple(arguments.exclude),
        near_duplicates=arguments.near_duplicates,
        clean=_clean_options(arguments),
        encoding=arguments.encoding,
        **_columns(arguments),
    )
    result = prepare(options, arguments.output, arguments.verbose)
    show(rows_table(result), end="\n\n")
    print_result(result)


def _clean_options(arguments: Arguments) -> CleanOptions:
    from pipelines.cleaning.options import CleanOptions

    return CleanOptions(
        steps=names_of(arguments.clean),
        split=arguments.split,
        min_tokens=arguments.min_tokens,
        max_tokens=arguments.max_tokens,
        max_non_letters=arguments.max_non_letters,
        repeated=arguments.repeated,
        language=names_of(arguments.language),
        language_probability=arguments.language_probability,
    )


def rows_table(result: dict[str, Any]) -> str:
    """Where the rows that were read went, as a table for a terminal."""
    from pipelines.preparing.report import row_counts
    from pipelines.runtime.progress import table

    return table(row_counts(result), ("rows", "number", "share"))


def _columns(arguments: Arguments) -> dict[str, str]:
    """The columns that are named, by one option each or by --triples."""
    from cotbert_core.training.batches import COLUMNS
    from pipelines.reading.columns import COLUMN_OPTIONS, TRIPLES

    names = [f"{name}_column" for name in ("text", *COLUMNS)]
    given = {n: getattr(arguments, n) for n in names if getattr(arguments, n) is not None}
    if not arguments.triples:
        return given
    if given:
        option = COLUMN_OPTIONS[names.index(next(iter(given)))]
        raise UserError(f"--triples names all three columns: leave out {option} or --triples")
    return dict(zip(names, TRIPLES, strict=True))
