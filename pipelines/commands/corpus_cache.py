"""Open the corpus that `--corpus` names: a prepared one, or raw text, which is prepared once."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from cotbert_core import __version__
from cotbert_core.errors import UserError
from cotbert_core.method_settings import MethodSettings
from pipelines.options.checks import option_of
from pipelines.preparing.options import PrepareOptions
from pipelines.preparing.prepare import check_input, prepare
from pipelines.reading.data_folder import DATA_FOLDER
from pipelines.reading.locations import real_path
from pipelines.runtime.progress import say, say_warnings
from pipelines.storage.corpus import Corpus, is_prepared, require_texts
from pipelines.storage.output_folder import check_writable
from pipelines.storage.paths import cache_folder


def open_or_prepare(
    corpus: str,
    encoder: str,
    max_length: int,
    text_column: str = "text",
    method: MethodSettings | None = None,
    **reading: Any,
) -> Corpus:
    """Return a prepared corpus; any other input is prepared into the cache unless it is there.

    method: the one that is to be trained, whose paired texts raw text must have. reading: the
    options of `prepare` for further columns, the encoding and the delimiter, which a prepared
    corpus cannot have, and the labelled texts to which they may belong. The cache key is made of
    cotbert's version, the input files' real paths, sizes and times, the tokenizer, the length, the
    columns, the encoding and the delimiter.
    """
    options = PrepareOptions((corpus,), encoder, max_length, text_column, **reading)
    if is_prepared(corpus):
        found = Corpus.open(corpus)
        _refuse_reading(options)
        return found
    above = Path(corpus).expanduser().absolute().parent
    if Path(corpus).name == DATA_FOLDER and is_prepared(above):
        raise UserError(f"corpus {corpus!r} is only the parts of a corpus: give {str(above)!r}")
    job = check_input(options)
    plan = job.plan
    if method is not None:
        require_texts(corpus, plan.columns, method.needs, method.name)
    # Only files have absolute paths, unlike docstrings and data sets.
    names = [real_path(name) if Path(name).is_absolute() else name for name in job.stamps]
    files = list(zip(names, job.stamps.values(), strict=True))
    facts = (__version__, files, job.tokenizer.hash, max_length)
    read = (plan.text_columns, plan.paired_columns, plan.encoding, plan.delimiter)
    known_by = repr((*facts, *read))
    folder = cache_folder() / "corpora" / hashlib.sha256(known_by.encode()).hexdigest()[:16]
    if is_prepared(folder):
        say(f"corpus {corpus} was prepared before: {folder}")
        found = Corpus.open(folder)
        say_warnings(found.manifest.get("warnings", []))
        return found
    try:
        check_writable(folder)
    except UserError:
        raise UserError(
            f"corpus {corpus!r} is raw text, and the cache folder {str(cache_folder())!r}, in which"
            " it would be prepared, cannot be written: set COTBERT_CACHE to a folder that you can "
            "write to"
        ) from None
    say(f"preparing {corpus} into {folder}")
    prepare(job.options, folder)
    return Corpus.open(folder)


def _refuse_reading(options: PrepareOptions) -> None:
    """Raise UserError if options name how a text is read, and the corpus is prepared already."""
    names = ["augmented_column", "negative_column"]
    if not options.labelled:
        names += ["text_column", "encoding", "delimiter"]
    for name in names:
        if (value := getattr(options, name)) != getattr(PrepareOptions, name):
            raise UserError(
                f"{name} is {value!r} and corpus {options.inputs[0]!r} is prepared, so its texts "
                f"are chosen already: leave out {option_of(name)}, or give the text itself"
            )
