"""SentenceEncoder: sentences to vectors, with the pooling that the encoder was trained with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from cotbert_core.encoder.attention import register_again
from cotbert_core.encoder.backbone import Backbone, load_backbone
from cotbert_core.encoder.forward import encode_rows
from cotbert_core.encoder.heads import Head, apply_head, load_head
from cotbert_core.encoder.pooling_config import PoolingConfig
from cotbert_core.encoder.pooling_files import resolve_pooling_config
from cotbert_core.encoder.prompts import prompt_tokens
from cotbert_core.encoder.template_denoising import template_bias
from cotbert_core.errors import UserError, require_tokens, unknown
from cotbert_core.evaluation.pairs import EncodeFunctions
from cotbert_core.method_settings.bases import Denoise
from cotbert_core.saving.model_folder import save_encoder
from cotbert_core.saving.saved_encoder import SavedEncoder
from cotbert_core.saving.training_metadata import TrainingMetadata
from cotbert_core.settings import Attention, Precision
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.templates.template_texts import Template
from cotbert_core.templates.tokenizing import end_with_full_stop
from cotbert_core.templates.wrapping import BoundTemplate
from cotbert_core.training.devices import to_device
from cotbert_core.training.precision import autocast

DTYPES, PRECISIONS = ("float32", "float16"), get_args(Precision)
# Maximum number of rows that are padded at a time: 65 MB at 128 tokens.
SLICE_ROWS = 65_536


class SentenceEncoder:
    """An encoder with its pooling configuration and its head, if it has one."""

    def __init__(
        self, backbone: Backbone, pooling: PoolingConfig, head: Head | None = None
    ) -> None:
        if (head is None) != (pooling.head is None):
            raise UserError(
                f"the pooling config's head is {pooling.head!r} and the head given is {head!r}: "
                "give both or neither"
            )
        self.backbone = backbone
        self.pooling = pooling
        self.head = head
        bound = BoundTemplate.bind(pooling.template, backbone.tokenizer.hf)
        self.bound = replace(bound, last=pooling.last)
        room = backbone.max_tokens - self.bound.length
        if room < 1:
            raise UserError(
                f"the template has {self.bound.length} tokens and the encoder {backbone.name!r} "
                f"takes at most {backbone.max_tokens}: shorten the template"
            )
        self.max_length = min(room, pooling.max_length or room)

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | Path,
        template: Template | str | None = None,
        readout: str | None = None,
        max_length: int | None = None,
        denoise: Denoise | None = None,
        *,
        allow_pickle: bool = False,
        attention: Attention = "auto",
    ) -> SentenceEncoder:
        """Open a folder, a hub name or all-MiniLM-L6-v2.

        A folder saved by this package is read as it was trained, any other with its own pooling
        (mean if it has none). template: a Template, a name or a text; its last mask is read.
        readout: mask, cls or mean. max_length: maximum number of tokens of a sentence, without the
        template. denoise: subtract the template's bias (position or pad) from the mask vector.
        allow_pickle: read weights from pytorch_model.bin if there are no safetensors. attention:
        the attention implementation (cotbert_core.encoder.attention). Raises UserError for an
        encoder that cannot be opened or read that way.
        """
        if attention not in (known := get_args(Attention)):
            raise unknown("attention", attention, known)
        backbone = load_backbone(str(name_or_path), allow_pickle=allow_pickle, attention=attention)
        pooling = resolve_pooling_config(
            backbone.name, template, readout, max_length, denoise, tokenizer=backbone.tokenizer
        )
        head = load_head(pooling.head, backbone.name, backbone) if pooling.head else None
        made = cls(backbone, pooling, head)
        if max_length is not None and max_length > made.max_length:
            raise UserError(
                f"max_length is {max_length} and the encoder {str(name_or_path)!r} takes "
                f"{made.max_length} tokens besides its template: give {made.max_length} or fewer"
            )
        return made

    @property
    def dimension(self) -> int:
        """The size D of a vector."""
        return self.backbone.hidden_size

    @cached_property
    def for_queries(self) -> SentenceEncoder | None:
        """The encoder with the template for queries; None if they are read like other texts.

        It takes as many tokens, with the template, as this one: sentence-transformers' limit.
        Raises UserError for a prompt that this encoder's tokenizer joins with a sentence.
        """
        query = self.pooling.query
        if query is None:
            return None
        prompt_tokens(query, self.backbone.tokenizer, self.backbone.name)
        made = self.with_template(query)
        made.max_length = max(1, self.max_length + self.bound.length - made.bound.length)
        return made

    def functions(self, precision: Precision = "auto") -> EncodeFunctions:
        """Return `encode` for texts and for queries.

        That of queries raises `for_queries`' error when it is called: texts need no usable prompt.
        """

        def queries(sentences: Sequence[str]) -> np.ndarray:
            return (self.for_queries or self).encode(sentences, precision=precision)

        texts = partial(self.encode, precision=precision)
        return EncodeFunctions(texts, None if self.pooling.query is None else queries)

    def with_template(self, template: Template) -> SentenceEncoder:
        """Return the encoder with another template, and otherwise the same pooling."""
        pooling = replace(self.pooling, template=template, query=None)
        return SentenceEncoder(self.backbone, pooling, self.head)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Register the attention implementation, which a pickle's new process lacks."""
        self.__dict__.update(state)
        register_again(self.backbone.model)

    def encode(
        self,
        sentences: Iterable[str],
        batch_tokens: int | None = None,
        normalize: bool | None = None,
        dtype: Literal["float32", "float16"] = "float32",
        precision: Precision = "auto",
    ) -> np.ndarray:
        """Return the vectors (N, D) of N sentences, in their order.

        batch_tokens: maximum number of padded tokens in one forward pass (None: the device's
        default). normalize: scale vectors to unit length (None: as stored in the folder). dtype:
        number format of the result. precision: number format of matrix products; auto: bf16 if the
        device computes it faster, else fp32. The encoder's model is in eval mode afterwards.
        """
        ids = self.tokenize(sentences, self.max_length)
        return self.encode_tokens(ids, batch_tokens, normalize, dtype, precision)

    def tokenize(self, sentences: Iterable[str], max_length: int | None = None) -> Ragged:
        """Return the token ids that `encode` uses for each sentence, without template and specials.

        max_length: number of tokens to which sentences are cut; None: sentences are not cut,
        although the encoder takes at most `self.max_length`.
        """
        if max_length is not None:
            max_length = require_tokens("max_length", max_length)
        _check_list(sentences)
        texts = [_folded(number, text) for number, text in enumerate(sentences)]
        if self.pooling.full_stop:
            texts = [end_with_full_stop(t) for t in texts]
        return self.backbone.tokenizer(
            texts,
            max_length,
            in_template=self.pooling.leading_blank,
            empty_blank=self.pooling.empty_blank,
        )

    def encode_tokens(
        self,
        ids: Ragged,
        batch_tokens: int | None = None,
        normalize: bool | None = None,
        dtype: Literal["float32", "float16"] = "float32",
        precision: Precision = "auto",
    ) -> np.ndarray:
        """Return the vectors (N, D) of N sentences in token ids, cut to `self.max_length` tokens.

        ids: from `tokenize`. The other arguments are those of `encode`.
        """
        for kind, value, known in (("dtype", dtype, DTYPES), ("precision", precision, PRECISIONS)):
            if value not in known:
                raise unknown(kind, value, known)
        if batch_tokens is not None:
            batch_tokens = require_tokens("batch_tokens", batch_tokens)
        if not len(ids):
            return np.zeros((0, self.dimension), dtype)
        with self._without_gradient():
            vectors = self.vectors(ids, batch_tokens, precision)
            if self.pooling.normalize if normalize is None else normalize:
                vectors = torch.nn.functional.normalize(vectors, dim=-1)
        return vectors.cpu().numpy().astype(dtype, copy=False)

    def _without_gradient(self) -> AbstractContextManager[None]:
        """Return inference mode on a CPU, and on a GPU no_grad.

        In inference mode autocast casts all weights again in each batch. On a CPU that is faster
        than keeping them (a short text takes 16 ms, else 25), on a GPU it is 74 kernels more.
        """
        on_gpu = self.backbone.device.type == "cuda"
        return torch.no_grad() if on_gpu else torch.inference_mode()

    def vectors(
        self, ids: Ragged, batch_tokens: int | None = None, precision: Precision = "auto"
    ) -> torch.Tensor:
        """Return the vectors (N, D) of N > 0 sentences on the encoder's device, as it reads them.

        They are not scaled to unit length. The arguments are those of `encode_tokens`.
        """
        ids = ids.cut(self.max_length)
        filled = np.flatnonzero(ids.lengths + self.bound.length)
        if len(filled) < len(ids):  # without special tokens an empty text has nothing to read
            if not len(filled):
                return torch.zeros(len(ids), self.dimension, device=self.backbone.device)
            read = self.vectors(ids.take(filled), batch_tokens, precision)
            found = read.new_zeros(len(ids), read.shape[1])
            found[filled] = read
            return found
        batches = batch_tokens or self.backbone.batch_tokens, self.backbone.start_tokens
        if len(ids) <= SLICE_ROWS:
            return self._slice_vectors(ids, batches, precision)
        # In the order of their lengths, so that a long sentence widens the rows of one slice.
        order = np.argsort(-ids.lengths, kind="stable")
        slices = np.split(order, range(SLICE_ROWS, len(order), SLICE_ROWS))
        parts = [self._slice_vectors(ids.take(rows), batches, precision) for rows in slices]
        return torch.cat(parts)[torch.from_numpy(order.argsort()).to(self.backbone.device)]

    def _slice_vectors(
        self, ids: Ragged, batches: tuple[int, int], precision: Precision
    ) -> torch.Tensor:
        backbone, pooling = self.backbone, self.pooling
        with autocast(precision, next(backbone.model.eval().parameters()).device):
            vectors = encode_rows(backbone, self.bound.wrap(ids), pooling.readout, *batches)
            bias, denoise = None, (pooling.denoise, pooling.pad_positions)
            if pooling.denoise != "none":
                bias = template_bias(backbone, self.bound, ids.lengths, *denoise, batches)
                if (ids.lengths == 0).any():
                    # An empty text is its template: rounding errors would be scaled to unit length.
                    empty = to_device(torch.from_numpy(ids.lengths == 0), vectors.device)
                    vectors = torch.where(empty[:, None], bias, vectors)
        return apply_head(vectors, bias, self.head)

    def save_pretrained(self, path: str | Path, metadata: TrainingMetadata | None = None) -> None:
        """Write a folder that this package, sentence-transformers and AutoModel can open.

        metadata: what is known of the training, for the model card. Warns if other libraries cannot
        represent the pooling; they then refuse the folder. Raises UserError if `path` is not empty.
        """
        save_encoder(self.saved(metadata), Path(path))

    def saved(self, metadata: TrainingMetadata | None = None) -> SavedEncoder:
        """Return everything from which a model folder is written."""
        metadata = metadata or TrainingMetadata()
        return SavedEncoder(
            self.backbone, self.bound, self.pooling, self.max_length, self.head, metadata
        )


def _check_list(sentences: object) -> None:
    """Raise UserError for a string or a table, over which a loop gives something else."""
    if isinstance(sentences, str | bytes):
        raise UserError("sentences is one string, not a list of them: put it in a list")
    # The names of the columns of a table, or the keys of a dictionary.
    if isinstance(sentences, Mapping) or getattr(sentences, "ndim", 1) != 1:
        raise UserError(
            f"sentences is a {type(sentences).__name__}, not a list of them: give the texts of one "
            "column or dimension"
        )


def _folded(number: int, text: object) -> str:
    """Return a text with single blanks; UserError if it is not a text, or not valid Unicode."""
    if not isinstance(text, str):
        raise UserError(f"sentences[{number}] is of the type {type(text).__name__}: give a str")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"sentences[{number}] has the lone surrogate {text[error.start]!a} at character "
            f"{error.start}, which is not valid Unicode: replace it, for example by "
            "text.encode(errors='replace').decode()"
        ) from None
    return " ".join(text.split())
