"""Tokenizing sentences without special tokens and without a template.

"[MASK]" or "</s>" typed inside a sentence stays plain text: splitting on special tokens is off, and
a Unigram vocabulary (XLM-R), which has them as pieces, never finds them.
For a byte-level tokenizer a sentence that goes into a template gets a leading blank, as in
"' [X] '"; the papers' code has that blank in evaluation but not in training. An empty sentence gets
the blank only with `empty_blank`: a tokenizer.json cannot express that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from tokenizers import AddedToken, Tokenizer, models

from cotbert_core.errors import UserError
from cotbert_core.templates.ragged_ids import Ragged, concatenate

# Number of characters that are tokenized together: the backend needs 200 to 600 bytes for each of
# them until the ids are copied. 8,192 sentences have 1 million.
CHARACTERS = 2 << 20
# A score with which a piece is never found: those of real pieces are above -30.
NEVER = -1e4


class PlainTokenizer:
    """A tokenizer made from JSON text, which needs neither torch nor transformers."""

    def __init__(self, tokenizer_json: str) -> None:
        backend = Tokenizer.from_str(tokenizer_json)
        backend.no_truncation()
        backend.no_padding()
        self.json = str(backend.to_str())
        """The rules as they are, by which tokenizers are compared."""
        if isinstance(backend.model, models.Unigram):
            rules = without_special_pieces(json.loads(self.json))
            backend = Tokenizer.from_str(json.dumps(rules))
        backend.encode_special_tokens = True
        self._backend = backend
        self._blank = " " if is_byte_level(backend) else ""

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Keep typed special tokens as text, a setting that the backend's pickle and copy lack."""
        self.__dict__.update(state)
        self._backend.encode_special_tokens = True

    def __call__(
        self,
        sentences: Sequence[str],
        max_length: int | None,
        *,
        in_template: bool = True,
        empty_blank: bool = False,
    ) -> Ragged:
        """Return the token ids of each sentence, cut to `max_length` tokens unless that is None.

        in_template: put the leading blank before a sentence for a byte-level tokenizer.
        empty_blank: put that blank into an empty sentence too.
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
    def lower_cases(self) -> bool:
        """Whether capital letters become small ones."""
        normalizer = self._backend.normalizer
        return normalizer is not None and "A" not in normalizer.normalize_str("A")

    @property
    def hash(self) -> str:
        """A short digest of vocabulary and rules; encoders with the same one can share a corpus."""
        return hashlib.sha256(self.json.encode()).hexdigest()[:16]


def _by_characters(texts: list[str]) -> Iterator[list[str]]:
    """Yield the texts in lists of about CHARACTERS characters, with at least one text each."""
    start = characters = 0
    for place, text in enumerate(texts):
        characters += len(text)
        if characters >= CHARACTERS:
            yield texts[start : place + 1]
            start, characters = place + 1, 0
    if start < len(texts):
        yield texts[start:]


class SentenceTokenizer(PlainTokenizer):
    """A PlainTokenizer made from a Hugging Face tokenizer, which is the attribute `hf`."""

    def __init__(self, tokenizer: Any) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise UserError(
                f"encoder {tokenizer.name_or_path!r} has no fast tokenizer (tokenizer.json): "
                "convert it with transformers, then try again"
            )
        super().__init__(tokenizer.backend_tokenizer.to_str())
        self.hf = tokenizer

    @property
    def added_words(self) -> list[AddedToken]:
        """The tokens that were added to the vocabulary, without special tokens and blanks."""
        added = self.hf.backend_tokenizer.get_added_tokens_decoder().values()
        return [token for token in added if not token.special and token.content.strip()]


def without_special_pieces(rules: dict[str, Any]) -> dict[str, Any]:
    """Return the rules of a Unigram tokenizer, which then find no special token in a text.

    transformers writes them into the list of pieces with the best score, 0; sentencepiece itself
    never finds them.
    """
    special = {token["content"] for token in rules["added_tokens"] if token["special"]}
    pieces = [[p, NEVER if p in special else score] for p, score in rules["model"]["vocab"]]
    return rules | {"model": rules["model"] | {"vocab": pieces}}


def is_byte_level(backend: Tokenizer) -> bool:
    """Return whether a leading blank in a token marks a new word (GPT-2, RoBERTa)."""
    return "ByteLevel" in repr(backend.pre_tokenizer)


def end_with_full_stop(sentence: str) -> str:
    """Return the sentence with a full stop unless it ends in one of . ? " ' (the papers' rule)."""
    return sentence + "." if sentence and sentence[-1] not in ".?\"'" else sentence
