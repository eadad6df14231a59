"""Sentences to token ids, without special tokens and without a template.

"[MASK]" or "</s>" typed inside a sentence stays plain text: splitting on special tokens is off.
A byte-level tokenizer gets a blank before a sentence that goes into a template, as it has there
("' [X] '"); the papers' code has that blank when it evaluates but not when it trains. An empty
sentence gets it only where that is asked for: no tokenizer.json can carry it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

from tokenizers import Tokenizer

from cotbert_core.errors import UserError
from cotbert_core.templates.ragged_ids import Ragged, concatenate

# Characters that are tokenized together: the backend takes 200 to 600 bytes for each of them until
# the ids are taken out of it. 8,192 sentences have 1 million.
CHARACTERS = 2 << 20


class PlainTokenizer:
    """Sentences to ids by a tokenizer given as JSON text; needs neither torch nor transformers."""

    def __init__(self, tokenizer_json: str) -> None:
        self._backend = Tokenizer.from_str(tokenizer_json)
        self._backend.no_truncation()
        self._backend.no_padding()
        self._backend.encode_special_tokens = True
        self._blank = " " if is_byte_level(self._backend) else ""

    def __call__(
        self,
        sentences: Sequence[str],
        max_length: int | None,
        *,
        in_template: bool = True,
        empty_blank: bool = False,
    ) -> Ragged:
        """Token ids of each sentence, cut to `max_length` tokens unless that is None.

        empty_blank: an empty sentence gets the blank of a byte-level tokenizer too.
        """
        texts = list(sentences)
        if in_template and self._blank:
            texts = [self._blank + s if s or empty_blank else s for s in texts]
        return concatenate(self._ids(some, max_length) for some in _by_characters(texts))

    def _ids(self, texts: list[str], max_length: int | None) -> Ragged:
        encodings = self._backend.encode_batch_fast(texts, add_special_tokens=False)
        return Ragged.from_lists([e.ids[:max_length] for e in encodings])

    @property
    def byte_level(self) -> bool:
        """Whether a sentence in a template gets a leading blank."""
        return bool(self._blank)

    @property
    def json(self) -> str:
        return str(self._backend.to_str())

    @property
    def hash(self) -> str:
        """Short digest of vocabulary and rules: two encoders share a corpus when it is equal."""
        return hashlib.sha256(self.json.encode()).hexdigest()[:16]


def _by_characters(texts: list[str]) -> Iterator[list[str]]:
    """The texts in lists of about CHARACTERS, at least one text each."""
    start = characters = 0
    for place, text in enumerate(texts):
        characters += len(text)
        if characters >= CHARACTERS:
            yield texts[start : place + 1]
            start, characters = place + 1, 0
    if start < len(texts):
        yield texts[start:]


class SentenceTokenizer(PlainTokenizer):
    """The plain-text side of a Hugging Face tokenizer, which stays at hand as `hf`."""

    def __init__(self, tokenizer: Any) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise UserError(
                f"encoder {tokenizer.name_or_path!r} has no fast tokenizer (tokenizer.json): "
                "convert it with transformers, then try again"
            )
        super().__init__(tokenizer.backend_tokenizer.to_str())
        self.hf = tokenizer


def is_byte_level(backend: Tokenizer) -> bool:
    """Whether words are told apart by a leading blank in the token (GPT-2, RoBERTa)."""
    return "ByteLevel" in repr(backend.pre_tokenizer)


def end_with_full_stop(sentence: str) -> str:
    """The papers' evaluation rule: a full stop unless the sentence ends in one of . ? " '."""
    return sentence + "." if sentence and sentence[-1] not in ".?\"'" else sentence
