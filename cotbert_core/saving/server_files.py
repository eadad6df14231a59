"""What inference servers read of a folder, written so that none of them gives other vectors.

text-embeddings-inference reads 1_Pooling/config.json, or takes the first token where a BERT has
none; vLLM reads the first Pooling of modules.json; both skip modules that they do not know. A
vector read at a mask token, or behind a head, would then silently be another one (cosine 0.3 to
0.8), so such a folder holds what makes them stop. They also open tokenizer.json by the library
tokenizers, whose switch that keeps a typed "[MASK]" text is no part of that file. docs/models.md
has their rules, with sources.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from cotbert_core.encoder.pooling_config import POOLING_MODES
from cotbert_core.files import read_json, write_json

SERVERS_POOLING = "1_Pooling"
# vLLM (and whatever goes by `architectures`) refuses a name that it does not know and shows it;
# transformers and sentence-transformers go by `model_type`.
REFUSED_ARCHITECTURE = "NotForServersThatPoolOnTheirOwn_SeeTheReadme"
# Old versions of text-embeddings-inference ask for these two keys as well.
_OTHER_MODES = ("pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens")
# transformers 4 and 5 both know this class; 5 would write one that 4 does not.
_TOKENIZER_CLASS = "PreTrainedTokenizerFast"


def write_pooling(folder: Path, hidden_size: int, readout: str | None) -> None:
    """Write a Pooling module's config.json; readout None: no mode, which servers refuse."""
    modes = {key: mode == readout for key, mode in POOLING_MODES.items()}
    modes |= dict.fromkeys(_OTHER_MODES, False)
    write_json(folder / "config.json", {"word_embedding_dimension": hidden_size} | modes)


def refuse_servers(folder: Path, hidden_size: int) -> None:
    """Make servers stop at a saved folder that transformers and sentence-transformers still open.

    No module of modules.json may lie in 1_Pooling/.
    """
    write_pooling(folder / SERVERS_POOLING, hidden_size, None)
    _name_no_architecture(folder)


def _name_no_architecture(folder: Path) -> None:
    config = read_json(folder / "config.json")
    write_json(folder / "config.json", config | {"architectures": [REFUSED_ARCHITECTURE]})


def serve_graph(folder: Path, hidden_size: int, max_tokens: int) -> None:
    """Write what servers ask for beside model.onnx, whose one output is the finished vector.

    text-embeddings-inference takes the output sentence_embedding as it is, but asks for a pooling
    first; it cuts texts by sentence_bert_config.json alone. fastembed before 0.9 asks for
    special_tokens_map.json, and looks for whatever that names in a text.
    """
    write_pooling(folder / SERVERS_POOLING, hidden_size, "cls")
    write_max_tokens(folder, max_tokens)
    write_json(folder / "special_tokens_map.json", {})
    _name_no_architecture(folder)


def write_max_tokens(folder: Path, max_tokens: int) -> None:
    """Write sentence_bert_config.json: most tokens of a row, the template's included."""
    length = {"max_seq_length": max_tokens, "do_lower_case": False}
    write_json(folder / "sentence_bert_config.json", length)


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Write a transformers tokenizer whose tokenizer.json keeps typed special tokens text.

    transformers finds them in tokenizer_config.json, and their ids in the vocabulary.
    """
    tokenizer.save_pretrained(str(folder))
    path = folder / "tokenizer.json"
    rules = without_special_tokens(read_json(path))
    Tokenizer.from_str(json.dumps(rules, ensure_ascii=False)).save(str(path))
    config = read_json(folder / "tokenizer_config.json")
    write_json(folder / "tokenizer_config.json", config | {"tokenizer_class": _TOKENIZER_CLASS})


def without_special_tokens(rules: dict[str, Any]) -> dict[str, Any]:
    """Return tokenizer.json's rules with no special token that is looked for in a text.

    The template's token ids do not need them. Their ids stay known: where the vocabulary is a
    table (WordPiece, BPE), it takes those that it lacks. A Unigram vocabulary is a list with
    scores, so one that it lacks stays a special token.
    """
    vocabulary = rules["model"]["vocab"]
    special = [token for token in rules["added_tokens"] if token["special"]]
    if isinstance(vocabulary, dict):
        vocabulary = vocabulary | {token["content"]: token["id"] for token in special}
        known = set(vocabulary)
    else:
        known = {piece for piece, _ in vocabulary}
    kept = [t for t in rules["added_tokens"] if not t["special"] or t["content"] not in known]
    return rules | {"added_tokens": kept, "model": rules["model"] | {"vocab": vocabulary}}
