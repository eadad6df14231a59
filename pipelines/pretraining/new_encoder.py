"""A new encoder: a BERT of a given size with random weights, and a corpus's WordPiece tokenizer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from cotbert_core.errors import UserError, counted
from cotbert_core.files import atomic_folder, read_json, write_json
from pipelines.runtime.progress import say
from pipelines.storage.corpus import Corpus

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# BERT's: a head of attention has 64 numbers, a feed-forward part four times the hidden size.
HEAD_SIZE, INNER, POSITIONS = 64, 4, 512
LEAST_VOCABULARY = 200
FACTS_FILE = "new_encoder.json"


@dataclass(frozen=True)
class NewEncoder:
    """layers, hidden: the encoder's size. vocabulary: number of tokens at most. cased: whether
    upper case is kept."""

    layers: int
    hidden: int
    vocabulary: int
    cased: bool = False

    def __post_init__(self) -> None:
        if self.vocabulary < LEAST_VOCABULARY:
            raise UserError(
                f"vocabulary is {self.vocabulary}: give at least {LEAST_VOCABULARY} tokens"
            )

    @property
    def heads(self) -> int:
        """The most attention heads of at least HEAD_SIZE numbers that divide the hidden size."""
        most = max(1, self.hidden // HEAD_SIZE)
        return next(n for n in range(most, 0, -1) if self.hidden % n == 0)


def parse_size(text: str) -> tuple[int, int]:
    """Return layers and hidden size of a text such as 4x256; UserError for anything else."""
    found = re.fullmatch(r"([1-9]\d{0,2})x([1-9]\d{0,4})", text)
    if not found:
        raise UserError(f"new is {text!r}: give LAYERSxHIDDEN, e.g. 4x256")
    return int(found[1]), int(found[2])


def make_encoder(new: NewEncoder, corpus: Corpus, folder: Path, seed: int) -> None:
    """Write the encoder into `folder`, unless it is there; UserError if another one is there."""
    from transformers import BertConfig, BertForMaskedLM
    from transformers.utils import logging

    facts = {**asdict(new), "seed": seed, "corpus_digest": corpus.digest}
    if (folder / FACTS_FILE).is_file():
        if read_json(folder / FACTS_FILE) != facts:
            raise UserError(
                f"{str(folder)!r} holds a new encoder of another size, vocabulary, seed or corpus: "
                "give the same options or a new output folder"
            )
        return
    say(f"making a new encoder of {counted(new.layers, 'layer')} x {new.hidden} in {folder}")
    tokenizer = _tokenizer(_word_pieces(new, corpus), new)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=new.hidden,
        num_hidden_layers=new.layers,
        num_attention_heads=new.heads,
        intermediate_size=INNER * new.hidden,
        max_position_embeddings=POSITIONS,
        pad_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = BertForMaskedLM(config)
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    with atomic_folder(folder) as partial:
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        write_json(partial / FACTS_FILE, facts)


def _word_pieces(new: NewEncoder, corpus: Corpus) -> list[str]:
    """Return the vocabulary of WordPiece trained on the corpus's texts, special tokens first.

    The trainer numbers characters as it meets them, in an order that differs in every process, and
    merges equally frequent pairs by their numbers. As special tokens they have fixed numbers.
    """
    from tokenizers import trainers

    backend = _word_piece({}, new)
    characters = _characters(corpus, backend)
    fixed = [*SPECIAL, *characters]
    if len(fixed) > new.vocabulary:
        raise UserError(
            f"vocabulary is {new.vocabulary} and the characters of the corpus alone are "
            f"{len(fixed)} tokens: give a larger --vocabulary"
        )
    trainer = trainers.WordPieceTrainer(
        vocab_size=new.vocabulary, special_tokens=fixed, show_progress=False
    )
    backend.train_from_iterator(_texts(corpus), trainer)
    return [*fixed, *sorted(set(backend.get_vocab()) - set(fixed))]


def _characters(corpus: Corpus, backend: Tokenizer) -> list[str]:
    """Return the characters that begin a word and, with ##, all that continue one, sorted."""
    first, inner = set[str](), set[str]()
    for texts in _texts(corpus):
        for text in texts:
            whole = backend.normalizer.normalize_str(text)
            for word, _ in backend.pre_tokenizer.pre_tokenize_str(whole):
                first.add(word[0])
                inner.update(word[1:])
    return [*sorted(first), *(f"##{one}" for one in sorted(inner))]


def _tokenizer(words: list[str], new: NewEncoder) -> Any:
    """Return the tokenizer of a vocabulary, as transformers opens it."""
    from tokenizers import decoders, processors
    from transformers import PreTrainedTokenizerFast

    numbers = {word: number for number, word in enumerate(words)}
    backend = _word_piece(numbers, new)
    backend.decoder = decoders.WordPiece()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(word, numbers[word]) for word in ("[CLS]", "[SEP]")],
    )
    named = {f"{word.strip('[]').lower()}_token": word for word in SPECIAL}
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend, model_max_length=POSITIONS, **named
    )


def _word_piece(numbers: dict[str, int], new: NewEncoder) -> Tokenizer:
    """Return BERT's splitting of texts with this vocabulary."""
    backend = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=not new.cased)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return backend


def _texts(corpus: Corpus) -> Iterator[list[str]]:
    for path in corpus.parts():
        for batch in pq.ParquetFile(path).iter_batches(columns=["text"]):
            yield batch["text"].to_pylist()
