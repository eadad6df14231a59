"""Two Marian models that really translate a small invented language there and back.

Ten words of the first language are five pairs of synonyms; both of a pair are one word of the
second, which comes back as the pair's second word. So a translation there and back of a sentence
is known word by word.
"""

from __future__ import annotations

import io
import json
import random
from pathlib import Path

SYNONYMS = {"bado": "beli", "cona": "cupa", "dimu": "doro", "feka": "fosi", "galo": "gutu"}
FORWARD = {word: f"x{pair[1]}" for pair in SYNONYMS.items() for word in pair}
BACKWARD = {f"x{word}": word for word in SYNONYMS.values()}
LONGEST = 6
STEPS, BATCH = 220, 64
POSITIONS = 16


def there_and_back(sentence):
    """What the two models make of a sentence, worked out from the dictionaries."""
    return " ".join(BACKWARD[FORWARD[word]] for word in sentence.split())


def sentences(count, seed=0, words=tuple(FORWARD)):
    """Distinct sentences of 1 to LONGEST words."""
    draw = random.Random(seed)
    found = {}
    while len(found) < count:
        found[" ".join(draw.choices(words, k=draw.randint(1, LONGEST)))] = None
    return list(found)


def build(folder):
    """Folders `there` and `back` below `folder`, trained and saved; their paths."""
    there = _train(Path(folder) / "there", FORWARD)
    back = _train(Path(folder) / "back", BACKWARD)
    return str(there), str(back)


def _train(folder, dictionary):
    import torch
    from transformers import MarianConfig, MarianMTModel

    folder.mkdir(parents=True)
    tokenizer = _tokenizer(folder, dictionary)
    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=len(tokenizer),
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_position_embeddings=POSITIONS,
        dropout=0.0,
        scale_embedding=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
        forced_eos_token_id=None,
        init_std=0.2,
    )
    model = MarianMTModel(config).train()
    model.generation_config.bad_words_ids = [[tokenizer.pad_token_id]]
    embeddings = model.get_input_embeddings().weight
    embeddings.data[tokenizer.pad_token_id] = 0
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    decay = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=STEPS)
    for step in range(STEPS):
        chosen = sentences(BATCH, step + 1, tuple(dictionary))
        targets = [" ".join(dictionary[w] for w in s.split()) for s in chosen]
        batch = tokenizer(chosen, text_target=targets, padding=True, return_tensors="pt")
        batch["labels"][batch["labels"] == tokenizer.pad_token_id] = -100
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay.step()
        # A real Marian model begins to decode with a vector of zeros.
        embeddings.data[tokenizer.pad_token_id] = 0
    model.save_pretrained(folder)
    return folder


def _tokenizer(folder, dictionary):
    from transformers import MarianTokenizer

    words = {"source": sorted(dictionary), "target": sorted(set(dictionary.values()))}
    for side, list_ in words.items():
        (folder / f"{side}.spm").write_bytes(_pieces(list_))
    pieces = [f"▁{w}" for w in (*words["source"], *words["target"])]
    vocabulary = {piece: n for n, piece in enumerate(["</s>", "<unk>", *pieces, "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    files = [str(folder / name) for name in ("source.spm", "target.spm", "vocab.json")]
    tokenizer = MarianTokenizer(*files, model_max_length=POSITIONS)
    tokenizer.save_pretrained(folder)
    return tokenizer


def _pieces(words):
    """A SentencePiece model whose pieces are these words."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([" ".join(words)] * 10),
        model_writer=model,
        model_type="word",
        vocab_size=len(words) + 3,
        minloglevel=2,
    )
    return model.getvalue()
