"""Notes on texts that are too long for how an adaptation reads them."""

from __future__ import annotations

import math

from cotbert_core.encoder.backbone import load_tokenizer
from cotbert_core.encoder.pooling_files import readable_pooling
from cotbert_core.encoder.row_limits import limit_below, most_tokens
from cotbert_core.errors import UserError
from pipelines.adapting.options import SENTENCE_TOKENS, AdaptOptions
from pipelines.storage.corpus import Corpus
from pipelines.storage.held_out_file import has_held_out, read_held_out

# The share of rows longer than SENTENCE_TOKENS from which they look like texts, not sentences. Of
# the sentences of documentation and of reviews 1 % are longer.
LONG_ROWS = 0.2
# The share from which they are texts: without documents the adaptation would learn little of them.
TEXTS = 0.5
# The share of held-out documents longer than the encoder reads from which the score says less.
LONG_DOCUMENTS = 0.2


def require_positions(encoder: str) -> None:
    """Raise UserError for an encoder NAME that cannot read sentences of SENTENCE_TOKENS."""
    special = load_tokenizer(encoder).hf.num_special_tokens_to_add()
    most = limit_below(SENTENCE_TOKENS + special, encoder)
    if most is not None:
        raise UserError(
            f"encoder {encoder!r} takes at most {most} tokens and adapt trains on sentences of up "
            f"to {SENTENCE_TOKENS} and {special} special ones: give another encoder, or train this "
            "one by `cotbert train` with a smaller --set max_length"
        )


def length_notes(corpus: Corpus, encoder: str, options: AdaptOptions) -> list[str]:
    """Return a note if rows that are adapted to as sentences look like texts, or if documents are
    longer than the encoder NAME reads."""
    if not options.has_documents:
        return _of_rows(corpus)
    return _of_documents(corpus, encoder) if has_held_out(corpus.path) else []


def require_sentences(corpus: Corpus, options: AdaptOptions) -> None:
    """Raise UserError for texts that would be adapted to as sentences by default alone."""
    cut = corpus.manifest["truncated"]
    if options.documents is None and not options.has_documents and cut >= TEXTS * len(corpus):
        raise UserError(
            f"{cut:,} of {len(corpus):,} rows have more than {SENTENCE_TOKENS} tokens, so they are "
            "texts of several sentences: give --split LANGUAGE, such as en, to adapt to each row "
            "as a document, or --documents none to adapt to it as one sentence"
        )


def _of_rows(corpus: Corpus) -> list[str]:
    cut = corpus.manifest["truncated"]
    if cut < LONG_ROWS * len(corpus):
        return []
    return [
        f"{cut:,} of {len(corpus):,} rows have more than {SENTENCE_TOKENS} tokens, and each row is "
        "adapted to as a sentence: if they are texts of several sentences, give --split LANGUAGE"
    ]


def _of_documents(corpus: Corpus, encoder: str) -> list[str]:
    limit = readable_pooling(encoder).get("max_length") or most_tokens(encoder)
    held_out = read_held_out(corpus.path, "test")
    targets = [held_out.targets[row] for row in held_out.of_documents[0]]
    long = int((load_tokenizer(encoder)(targets, None).lengths > (limit or math.inf)).sum())
    if long < LONG_DOCUMENTS * len(targets):
        return []
    return [
        f"{long:,} of {len(targets):,} held-out documents have more than the {limit} tokens that "
        "the encoder reads, and their ends are found by passages alone (`cotbert embed --passages "
        "60`): smaller documents, such as --documents paragraph (of txt, md and rst files), are "
        "learnt and found better"
    ]
