"""Exclude given sentences from a corpus, such as those of an evaluation set.

Sentences are compared without case, punctuation and white space, so `Two dogs, running.` excludes
`two dogs running`. Files have one sentence per line, or columns (csv or tab-separated), so
SentEval's STS files can be given unchanged. Labels and numbers are compared like sentences.
"""

from __future__ import annotations

import csv
import hashlib
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import regex

from cotbert_core.errors import UserError, counted
from pipelines.cleaning.cleaner import Cleaner
from pipelines.cleaning.options import CleanOptions
from pipelines.cleaning.steps import fold
from pipelines.reading.delimiters import NAMES
from pipelines.reading.encoding_guess import guess_encoding
from pipelines.reading.encodings import HEAD_BYTES, MARK, as_utf8, is_utf8, wide_encodings
from pipelines.reading.input_files import is_hidden, leading_out
from pipelines.reading.locations import suffixes
from pipelines.runtime.progress import say, say_once

HIT = "hit."
# Many of SentEval's files have no suffix.
SUFFIXES = (".txt", ".csv", ".tsv", "")
# The suffixes of files that are refused where they are named, since no line of them is a sentence.
REFUSED = (".jsonl", ".ndjson", ".json", ".parquet")
# Indic scripts write vowels as marks, which count. Marks that belong to no script (Inherited), such
# as Arabic vowels and the selectors of emoji, are often left out, and do not.
_NO_LETTERS = regex.compile(r"[^\p{L}\p{M}\p{N}]+|\p{Script=Inherited}+")


def not_excluded(
    columns: list[list[str]], excluded: frozenset[bytes], counts: Counter[str]
) -> list[bool]:
    """Return for each row whether none of its texts is excluded.

    columns: lists of texts. excluded: keys of sentences (see `key`). The other rows are counted as
    dropped, and each excluded sentence by its key under HIT.
    """
    stays = []
    for row in zip(*columns, strict=True):
        if hits := excluded.intersection(filter(None, map(key, row))):
            counts["dropped.excluded"] += 1
            counts.update(f"{HIT}{k.hex()}" for k in hits)
        stays.append(not hits)
    return stays


def key(text: str) -> bytes | None:
    """Return an 8-byte hash of a text's letters, digits and vowel signs; None if it has none."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    letters = _NO_LETTERS.sub("", text.casefold())
    return hashlib.blake2b(letters.encode(), digest_size=8).digest() if letters else None


def read_exclusion(
    inputs: Sequence[str],
    delimiter: str | None = None,
    encoding: str | None = None,
    clean: CleanOptions | None = None,
) -> frozenset[bytes]:
    """Return the keys of the sentences in files and folders; UserError if one has none.

    delimiter: a further one at which `_cells` splits csv files. encoding: of the files that are not
    UTF-8. clean: its steps and its split are applied too, as to the corpus.
    """
    cleaner = None
    if clean and (clean.steps or clean.split):
        cleaner = Cleaner(CleanOptions(steps=clean.steps, split=clean.split))
    keys: set[bytes] = set()
    for item in inputs:
        found: set[bytes] = set()
        for path in _files(item):
            texts = list(_sentences(path, delimiter, encoding))
            texts += cleaner([[fold(text) for text in texts]]).texts if cleaner else []
            found.update(filter(None, map(key, texts)))
        if not found:
            raise UserError(f"--exclude {item!r} has no sentences: give files with sentences")
        keys |= found
    return frozenset(keys)


def _files(item: str) -> list[Path]:
    path = Path(item).expanduser().absolute()
    if path.is_dir():
        seen = [p for p in path.rglob("*") if p.is_file() and not is_hidden(str(p), str(path))]
        found = [p for p in seen if p.suffix.lower() in SUFFIXES]
        if skipped := sorted(set(seen).difference(found)):
            are, exclude = ("is", "excludes") if len(skipped) == 1 else ("are", "exclude")
            say_once(
                f"warning: {counted(len(skipped), 'file')} in --exclude {item!r} {are} not txt, "
                f"csv or tsv and {exclude} nothing, the first {str(skipped[0])!r}: "
                "write their sentences to such files"
            )
        outside = set(leading_out(str(path), [str(p) for p in found]))
        if outside:
            say_once(
                f"warning: {len(outside)} links in --exclude {item!r} lead outside it and were not "
                f"followed, the first {min(outside)!r}: name the files themselves"
            )
        return sorted(p for p in found if str(p) not in outside)
    if not path.is_file():
        why = "is a pipe or a device" if path.exists() else "does not exist"
        raise UserError(f"--exclude {item!r} {why}: give a file or a folder")
    ending, compression = suffixes(item)
    if compression or ending in REFUSED:
        raise UserError(
            f"--exclude {item!r} ends in {ending + compression!r}: write its sentences to a txt, "
            "csv or tsv file"
        )
    return [path]


def _sentences(path: Path, delimiter: str | None, encoding: str | None) -> Iterator[str]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"--exclude {str(path)!r} cannot be read ({error.strerror}): change its permissions"
        ) from None
    if encoding and (wide_encodings(content[:HEAD_BYTES]) or not is_utf8(content)):
        content = b"".join(as_utf8([content], encoding))
    if found := wide_encodings(content[:HEAD_BYTES]):
        raise UserError(
            f"--exclude {str(path)!r} is {found[0].upper()}: convert it to UTF-8, e.g. with "
            f"`iconv -f {found[0]} -t UTF-8`"
        )
    # bytes.splitlines only splits at \r, \n and \r\n, as the reader of a corpus does.
    lines = content.removeprefix(MARK).splitlines()
    if guess := guess_encoding(lines):
        say(
            f"warning: --exclude {str(path)!r} has lines that are not UTF-8 (such as "
            f"{guess.example!r}), which exclude nothing: convert it to UTF-8"
            + (f", e.g. with `iconv -f {guess.encoding} -t UTF-8`" if guess.encoding else "")
        )
    yield from _cells([line.decode(errors="replace") for line in lines], path, delimiter)


def _cells(lines: Sequence[str], path: Path, delimiter: str | None) -> Iterator[str]:
    """Yield the cells of each line, and each line of a csv file, which may be without quotes.

    A csv file is split at commas, at `delimiter`, and at each usual delimiter in its first line.
    Files with tabs have no quoting: SentEval's files have unbalanced quotes, and the comparison
    ignores quotes around a sentence.
    """
    for line in lines:
        yield from line.split("\t")
    first = (lines or [""])[0]
    if path.suffix.lower() == ".csv" and "\t" not in first:
        csv.field_size_limit(sys.maxsize)  # an open quote makes a cell of the rest of the file
        for sign in {",", delimiter or ",", *(name for name in NAMES if name in first)}:
            yield from chain.from_iterable(csv.reader(lines, delimiter=sign))
