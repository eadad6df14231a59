"""A pretrained encoder with its tokenizer.

BERT and RoBERTa only differ here in the first position id and in the mask token. The encoder's
pooler is kept, because saved folders contain it, but it is never trained.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import torch

from cotbert_core.encoder.attention import (
    PLAIN,
    UNPADDED,
    accept_bf16,
    initial_attention,
    set_attention,
)
from cotbert_core.encoder.dropout import replace_dropout
from cotbert_core.encoder.locations import saved_part, small_files
from cotbert_core.encoder.prefixes import load_prefixes, prefix_length
from cotbert_core.encoder.pretrained import open_pretrained
from cotbert_core.encoder.row_limits import max_tokens, position_start
from cotbert_core.encoder.sentence_transformers_pooling import transformer_settings
from cotbert_core.encoder.threads import keep_threads_started
from cotbert_core.errors import UserError
from cotbert_core.settings import Attention
from cotbert_core.templates.tokenizing import SentenceTokenizer
from cotbert_core.training.devices import current_device

PLAIN_TOKENIZER = "plain_tokenizer"
# transformers replaces its module while it is imported: a thread that waits for the import of
# another one gets the module without any classes.
_IMPORTING = Lock()
# The families of encoders (`model_type` of transformers) whose vectors are tested. Others cannot be
# run here or would give wrong vectors: those of ConvBERT, MobileBERT, Nystromformer, YOSO and FNet
# depend on the padding, and XLM and FlauBERT count positions from 0 although they have padding_idx.
SUPPORTED = (
    *("albert", "bert", "camembert", "data2vec-text", "deberta", "deberta-v2", "distilbert"),
    *("electra", "ernie", "eurobert", "gte", "jina_embeddings_v3", "megatron-bert", "modernbert"),
    *("mpnet", "nomic_bert", "rembert", "roberta", "roberta-prelayernorm", "roformer"),
    *("xlm-roberta", "xlm-roberta-xl"),
)
# Maximum tokens of a forward pass. On 2 CPU cores 1,024 was the fastest of 512, 1,024 and 2,048 in
# fp32 and within 2 % of it in bf16 (activations of 1,024 x 1,536 floats stay in the cache).
CPU_BATCH_TOKENS = 1024
CUDA_BATCH_TOKENS = 32768
# The fixed cost of a forward pass, as the number of tokens that take as long. On 2 CPU cores 64 was
# the fastest of 0 to 256 for 2,000 Wikipedia lines: 4 % faster than 0 in fp32, 2 % in bf16 and with
# an int8 graph; 1 % of the tokens are then padding, not 3. An H200 encoded 8,192 such lines 1.6
# times as fast with all-MiniLM-L6-v2, and 1.2 times with BERT-base, as with batches of 16,384
# tokens and 1,200 for a start, although 11 % is then padding, not 6. With 12,000 for a start and
# 16 % padding it was 5 % faster still, and 3 % slower.
CPU_START_TOKENS = 64
CUDA_START_TOKENS = 4000


@dataclass
class Backbone:
    """An encoder with its tokenizer. model: a transformers model (an nn.Module)."""

    model: Any
    tokenizer: SentenceTokenizer
    name: str
    attention: str = "eager"
    """transformers' name of the attention implementation (cotbert_core.encoder.attention)."""
    vocabulary: Any = None
    """The MlmHead that is saved with the model (cotbert_core.encoder.mlm), if any."""

    @property
    def device(self) -> torch.device:
        return torch.device(self.model.device)

    @property
    def hidden_size(self) -> int:
        return int(self.model.config.hidden_size)

    @property
    def position_start(self) -> int:
        """The id of the first position: padding_idx + 1 for the RoBERTa family, 0 for BERT."""
        return position_start(self.model)

    @property
    def max_tokens(self) -> int:
        """The maximum number of tokens in a row, including special tokens."""
        return max_tokens(self.model)

    @property
    def reads_positions(self) -> bool:
        """Whether position ids change the vectors; DeBERTa v3 has relative positions alone."""
        return bool(getattr(self.model.config, "position_biased_input", True))

    @property
    def packs(self) -> bool:
        """Whether the encoder takes packed rows."""
        return self.attention == UNPADDED

    def packed(self) -> Backbone:
        """Return the encoder for packed rows, with the same model, which is set to them; itself if
        its family or its prefixes do not allow them."""
        if self.attention != PLAIN or prefix_length(self.model):
            return self
        return replace(self, attention=set_attention(self.model, self.name, "unpadded"))

    @property
    def batch_tokens(self) -> int:
        """The maximum padded tokens of a forward pass without gradient."""
        return CUDA_BATCH_TOKENS if self.device.type == "cuda" else CPU_BATCH_TOKENS

    @property
    def start_tokens(self) -> int:
        """The fixed cost of such a pass (`length_batches`); packed rows have no padding to save."""
        if self.packs:
            return 0
        return CUDA_START_TOKENS if self.device.type == "cuda" else CPU_START_TOKENS


def load_tokenizer(name: str) -> SentenceTokenizer:
    """Return the tokenizer of an encoder NAME, without a template.

    In a folder saved by this package tokenizer.json contains the template, so the tokenizer without
    it has a folder of its own. Raises UserError if there is none, or none with words, or if it
    keeps capital letters although the folder's Transformer module is to lower-case texts.
    """
    with _IMPORTING:
        from transformers import AutoTokenizer

    plain = saved_part(name, PLAIN_TOKENIZER)
    if plain.is_dir():
        name = str(plain)
    tokenizer = SentenceTokenizer(open_pretrained(AutoTokenizer, name))
    if set(tokenizer.hf.get_vocab()) <= set(tokenizer.hf.all_special_tokens):
        # transformers makes one of five special tokens where the tokenizer's files are missing.
        raise UserError(
            f"encoder {name!r} has no tokenizer, or one without words: copy tokenizer.json, or the "
            "vocabulary, from where the encoder was made"
        )
    if tokenizer.lower_cases:
        return tokenizer
    file, values = transformer_settings(small_files(name))
    if values.get("do_lower_case"):
        raise UserError(
            f"encoder {name!r} has do_lower_case in {file.name} and a tokenizer that keeps "
            "capital letters, which is not supported: set it to false in a copy of the folder to "
            "read texts as they are, or use sentence-transformers"
        )
    return tokenizer


def load_backbone(
    name: str,
    *,
    dropout: float | None = None,
    allow_pickle: bool = False,
    attention: Attention = "auto",
) -> Backbone:
    """Load an encoder NAME in fp32 and eval mode onto this process's device.

    dropout: replaces the encoder's own hidden and attention dropout rates, but not in its config.
    allow_pickle: read weights from a pickle (pytorch_model.bin) if there are no safetensors.
    attention: see cotbert_core.encoder.attention. Raises UserError for a name that cannot be
    loaded, and for an encoder of another family than the SUPPORTED ones.
    """
    with _IMPORTING:
        from transformers import AutoConfig, AutoModel

    keep_threads_started()
    config = open_pretrained(AutoConfig, name)
    if config.model_type not in SUPPORTED:
        raise UserError(
            f"encoder {name!r} is of the family {config.model_type!r}, which is not supported: "
            f"give one of the families {', '.join(SUPPORTED)}"
        )
    tokenizer = load_tokenizer(name)
    device = current_device()
    model = open_pretrained(
        AutoModel,
        name,
        config=config,
        allow_pickle=allow_pickle,
        attn_implementation=initial_attention(attention, device),
        dtype=torch.float32,
    )
    tokens, embeddings = len(tokenizer.hf), model.get_input_embeddings().num_embeddings
    if tokens > embeddings:
        raise UserError(
            f"encoder {name!r} has {embeddings:,} token embeddings and a tokenizer of {tokens:,} "
            "tokens: give it the tokenizer that belongs to it, or call its "
            "resize_token_embeddings and train it on"
        )
    if getattr(model, "pooler", None) is not None:
        model.pooler.requires_grad_(False)
    model = model.to(device).eval()
    implementation = set_attention(model, name, attention)
    accept_bf16(model)
    load_prefixes(model, name)
    replace_dropout(model, dropout)
    return Backbone(model, tokenizer, name, implementation)
