"""Tokenizers unlike BERT's and RoBERTa's: added words, runs of blanks, special tokens as pieces."""

from __future__ import annotations

import shutil
import string
from dataclasses import replace

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors
from tokenizers.trainers import BpeTrainer
from transformers import (
    AutoModel,
    AutoTokenizer,
    ModernBertConfig,
    ModernBertModel,
    PreTrainedTokenizerFast,
    XLMRobertaConfig,
    XLMRobertaModel,
)

from cotbert_core import SentenceEncoder
from cotbert_core.encoder.backbone import load_backbone, load_tokenizer
from cotbert_core.encoder.pooling_config import PoolingConfig
from cotbert_core.errors import UserError
from cotbert_core.files import read_json, write_json
from cotbert_core.readouts.layers import ThreeReadouts

SIZES = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
SIZES |= {"initializer_range": 0.2}
TEXTS = [
    *("A man is playing the guitar.", "Two dogs run", "", "a    b  c ", "x <unk> y"),
    *("the [MASK] man [CLS]", "the <mask> man", "old <s>price</s> 5", "a <pad> b"),
    *("mail |||EMAIL_ADDRESS||| now", "a [unused0] b", "a man with covid19", "日本 é ﬁ 。"),
]


@pytest.fixture
def words_folder(bert_folder, tmp_path):
    """BERT with words that a user added."""
    tokenizer = AutoTokenizer.from_pretrained(bert_folder)
    tokenizer.add_tokens(["covid19", "[unused0]"])
    model = AutoModel.from_pretrained(bert_folder)
    model.resize_token_embeddings(len(tokenizer))
    return saved(model, tokenizer, tmp_path / "encoder")


def test_a_tokenizer_with_more_tokens_than_embeddings_is_refused(bert_folder, tmp_path):
    """The first text with such a token would end a job."""
    tokenizer = AutoTokenizer.from_pretrained(bert_folder)
    tokenizer.add_tokens(["covid19"])
    folder = saved(AutoModel.from_pretrained(bert_folder), tokenizer, tmp_path / "encoder")
    with pytest.raises(UserError, match=r"has 164 token embeddings and a tokenizer of 165 tok"):
        load_backbone(folder)


@pytest.fixture
def blanks_folder(tmp_path, sentences):
    """ModernBERT: runs of blanks and words were added before the special tokens, and after them."""
    backend = Tokenizer(models.BPE())
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(sentences, trainer)
    for word in ("    ", "  ", "|||EMAIL_ADDRESS|||"):
        backend.add_tokens([AddedToken(word, normalized=True)])
    special = [f"[{name}]" for name in ("UNK", "CLS", "SEP", "PAD", "MASK")]
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    backend.add_tokens([AddedToken("[unused0]", normalized=True)])
    cls, sep = (("[CLS]", backend.token_to_id("[CLS]")), ("[SEP]", backend.token_to_id("[SEP]")))
    processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=[cls, sep])
    backend.post_processor = processor
    names = {f"{token.strip('[]').lower()}_token": token for token in special}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **names)
    ids = {f"{name}_token_id": cls[1] for name in ("bos", "cls", "eos", "sep")}
    ids["pad_token_id"] = backend.token_to_id("[PAD]")
    size = {"vocab_size": len(tokenizer), "max_position_embeddings": 128}
    config = ModernBertConfig(num_hidden_layers=3, **size, **SIZES, **ids)
    torch.manual_seed(0)
    return saved(ModernBertModel(config), tokenizer, tmp_path / "encoder")


@pytest.fixture
def pieces_folder(tmp_path):
    """XLM-R: the special tokens are pieces of its Unigram vocabulary."""
    letters = [(letter, -6.0) for letter in string.ascii_letters + string.digits + "</>[]|_.'\""]
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    pieces = [*((token, 0.0) for token in special), ("▁", -3.0), ("▁the", -4.0), *letters]
    backend = Tokenizer(models.Unigram([*pieces, ("<mask>", 0.0)], unk_id=3))
    split = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    backend.pre_tokenizer = pre_tokenizers.Sequence(split)
    ends = [("<s>", 0), ("</s>", 2)]
    backend.post_processor = processors.TemplateProcessing("<s> $A </s>", special_tokens=ends)
    names = dict(zip(("cls", "pad", "sep", "unk", "mask"), [*special, "<mask>"], strict=True))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, **{f"{name}_token": token for name, token in names.items()}
    )
    size = {"vocab_size": len(tokenizer), "max_position_embeddings": 130}
    config = XLMRobertaConfig(num_hidden_layers=2, pad_token_id=1, **size, **SIZES)
    torch.manual_seed(0)
    return saved(XLMRobertaModel(config), tokenizer, tmp_path / "encoder")


def saved(model, tokenizer, folder):
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(params=["words", "blanks", "pieces"])
def folder(request):
    return request.getfixturevalue(f"{request.param}_folder")


@pytest.mark.parametrize(
    "reading", [{}, {"template": "promptbert/anchor"}, {"template": "cot-bert/anchor"}]
)
def test_a_saved_folder_has_the_ids_and_the_vectors(folder, tmp_path, reading):
    encoder = SentenceEncoder.from_pretrained(folder, **reading)
    encoder.save_pretrained(tmp_path / "saved")
    found = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_allclose(
        found.encode(TEXTS), encoder.encode(TEXTS, precision="fp32"), atol=1e-5
    )
    plain = encoder.backbone.tokenizer.hf.get_vocab()
    others = found.tokenizer.get_vocab()
    kept = [token for token in plain if token.strip()]
    assert [others[token] for token in kept] == [plain[token] for token in kept]


def test_typed_special_tokens_stay_text(folder):
    tokenizer = load_tokenizer(folder)
    special = set(tokenizer.hf.all_special_ids) - {tokenizer.hf.unk_token_id}
    for text in TEXTS:
        assert not special & set(tokenizer([text], None)[0].tolist())


def test_a_word_that_is_found_before_texts_change_is_not_carried(bert_folder):
    encoder = SentenceEncoder.from_pretrained(bert_folder)
    assert encoder.saved().is_portable
    encoder.backbone.tokenizer.hf.add_tokens([AddedToken("New York", normalized=False)])
    assert "found before texts change" in encoder.saved().not_carried


@pytest.mark.parametrize("attention", ["auto", "unpadded"])
def test_a_text_without_tokens_has_a_vector_of_zeros(bert_folder, tmp_path, attention):
    """A tokenizer that was trained without a post-processor adds no special tokens."""
    shutil.copytree(bert_folder, tmp_path / "encoder")
    file = tmp_path / "encoder" / "tokenizer.json"
    write_json(file, read_json(file) | {"post_processor": None})
    encoder = SentenceEncoder.from_pretrained(tmp_path / "encoder", attention=attention)
    texts = ["oil", "", "Two dogs run", "\u200b"]
    vectors = encoder.encode(texts, precision="fp32")
    assert not vectors[1::2].any()
    assert not encoder.encode([""]).any()
    library = SentenceTransformer(str(tmp_path / "encoder"), device="cpu").encode(texts)
    np.testing.assert_allclose(vectors, library, atol=1e-6)
    wide = replace(encoder.backbone, model=ThreeReadouts(encoder.backbone.model))
    if attention == "auto":  # of a baseline, whose vectors are three times as wide
        read = SentenceEncoder(wide, PoolingConfig("mean")).encode(texts, precision="fp32")
        np.testing.assert_allclose(read[:, : encoder.dimension], vectors, atol=1e-6)


def test_a_tokenizer_without_a_padding_token_is_refused(bert_folder, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(bert_folder)
    tokenizer.pad_token = None
    folder = saved(AutoModel.from_pretrained(bert_folder), tokenizer, tmp_path / "encoder")
    with pytest.raises(UserError, match=r"has no padding token, .*: set the pad_token of its tok"):
        SentenceEncoder.from_pretrained(folder)
