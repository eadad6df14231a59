"""A T5 small enough to try every output."""

from __future__ import annotations

import torch

from cotbert_core.template_search.generation import SENTINELS

WORDS = ("▁means", "▁called", "▁it", ".")
PIECES = ("<pad>", "</s>", "<unk>", *SENTINELS, "<extra_id_3>", *WORDS, "[X]", "▁[MASK]")
START = 0


def tiny_t5(folder, pieces=PIECES):
    """A random T5 of 2 layers x 16; its table of embeddings is 3 rows longer than its tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

    backend = Tokenizer(models.WordLevel({p: i for i, p in enumerate(pieces)}, unk_token="<unk>"))
    parts = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    backend.pre_tokenizer = pre_tokenizers.Sequence(parts)
    backend.decoder = decoders.Metaspace()
    backend.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        additional_special_tokens=[p for p in pieces if p.startswith("<extra")],
    )
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=len(pieces) + 3,
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=2,
        num_heads=2,
        decoder_start_token_id=START,
        initializer_factor=2.0,
    )
    T5ForConditionalGeneration(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
