"""Compare the engines of back-translation on the CPU: CTranslate2 and transformers.

The model has opus-mt's size (512 wide, 6 + 6 layers, 58,101 tokens) and random weights, so nothing
is downloaded, and the work per token is the same. Its output would never end, so both engines write
as many tokens as they read.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.harness import DisagreementError, Row, interleave
from pipelines.augmenting.marian import MarianModel
from pipelines.augmenting.options import BackTranslation
from pipelines.augmenting.translation_engines import Engine, Ids, load_engine, most_tokens

SENTENCES, SHORTEST, LONGEST = 32, 8, 24
VOCABULARY, WIDTH, LAYERS = 58_101, 512, 6
# Least share of rows for which both engines write the same tokens. The two likeliest tokens of a
# random model have nearly equal scores, so rounding may decide.
AGREEMENT = 0.9


def run(texts: Sequence[str], rounds: int) -> list[Row]:
    """Return the seconds to translate 32 sentences of 8 to 24 tokens greedily, in one batch.

    texts: unused, since the model has no language.
    """
    del texts
    import torch

    threads = torch.get_num_threads()
    with (
        tempfile.TemporaryDirectory() as name,
        patch.dict(os.environ, COTBERT_CACHE=f"{name}/cache"),
    ):
        model = _random_model(Path(name) / "model")
        engines = {
            kind: load_engine(model, _options(*kind.split()), threads)
            for kind in ("transformers float32", "ctranslate2 float32", "ctranslate2 int8")
        }
        ids = _sentences()
        _check(engines["transformers float32"], engines["ctranslate2 float32"], ids)
        seconds = interleave(
            {kind: lambda _, e=engine: e.translate(ids, 0) for kind, engine in engines.items()},  # type: ignore[misc]
            rounds,
        )
    peer = seconds.pop("transformers float32")
    checks = {"ctranslate2 float32": "same tokens", "ctranslate2 int8": ""}
    return [
        Row(f"translate {SENTENCES} sentences", kind, "transformers float32", own, peer, None, note)
        for (kind, own), note in zip(seconds.items(), checks.values(), strict=True)
    ]


def _options(engine: Any, precision: Any) -> BackTranslation:
    # Both stop at this length: a random model never writes its end token by itself.
    return BackTranslation(engine=engine, precision=precision, beam=1, max_length_factor=1.0)


def _sentences() -> Ids:
    """Return random token ids that end with the end token."""
    draw = np.random.default_rng(0)
    lengths = draw.integers(SHORTEST, LONGEST + 1, SENTENCES)
    return [[*draw.integers(2, VOCABULARY - 1, int(n)).tolist(), 0] for n in sorted(lengths)]


def _random_model(folder: Path) -> MarianModel:
    import torch
    from transformers import MarianConfig, MarianMTModel, MarianTokenizer

    folder.mkdir()
    known = ["</s>", "<unk>", *(f"t{n}" for n in range(VOCABULARY - 3)), "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({token: n for n, token in enumerate(known)}))
    for side in ("source", "target"):
        (folder / f"{side}.spm").write_bytes(_pieces())
    files: list[Any] = [str(folder / n) for n in ("source.spm", "target.spm", "vocab.json")]
    MarianTokenizer(*files, model_max_length=512).save_pretrained(folder)
    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=VOCABULARY,
        d_model=WIDTH,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        encoder_ffn_dim=4 * WIDTH,
        decoder_ffn_dim=4 * WIDTH,
        max_position_embeddings=512,
        activation_function="swish",
        scale_embedding=True,
        pad_token_id=VOCABULARY - 1,
        eos_token_id=0,
        decoder_start_token_id=VOCABULARY - 1,
        forced_eos_token_id=None,
    )
    model = MarianMTModel(config)
    # As in trained models, decoding begins with zeros and padding is never written.
    model.get_input_embeddings().weight.data[VOCABULARY - 1] = 0
    model.generation_config.bad_words_ids = [[VOCABULARY - 1]]
    # The end token is never written, so both engines write the same number of tokens.
    model.final_logits_bias[0, 0] = -1e4
    model.save_pretrained(folder)
    return MarianModel("random", str(folder), "random")


def _pieces() -> bytes:
    """Return a SentencePiece model, which the tokenizer requires but the random ids do not use."""
    import io

    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b c"] * 5),
        model_writer=model,
        model_type="word",
        vocab_size=6,
        minloglevel=2,
    )
    return model.getvalue()


def _check(first: Engine, second: Engine, ids: Ids) -> None:
    """Warm up both engines and check the number and the agreement of the tokens they write."""
    one, other = first.translate(ids, 0), second.translate(ids, 0)
    wanted = most_tokens(ids, _options("transformers", "float32"))
    if {len(row) for row in (*one, *other)} != {wanted}:
        lengths = sorted({len(row) for row in (*one, *other)})
        raise DisagreementError(f"rows of {lengths} tokens, {wanted} are wanted")
    same = np.mean([a == b for a, b in zip(one, other, strict=True)])
    if same < AGREEMENT:
        raise DisagreementError(f"{same:.0%} of the rows are equal, {AGREEMENT:.0%} are wanted")
