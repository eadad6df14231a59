"""The files that inference servers read, written so that every server gives the same vectors.

text-embeddings-inference reads 1_Pooling/config.json, or uses the first token for a BERT without
that file; vLLM reads the first Pooling of modules.json; both skip modules that they do not know. A
vector at a mask token or after a head would then silently be a different one (cosine 0.3 to 0.8),
so such a folder has files that make the servers, and txtai, refuse it. They also open
tokenizer.json with the library tokenizers, whose option that keeps a typed "[MASK]" as text is not
part of that file. docs/models.md has the servers' rules, with sources.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from cotbert_core.encoder.sentence_transformers_pooling import POOLING_MODES
from cotbert_core.files import read_json, write_json
from cotbert_core.templates.tokenizing import without_special_pieces

SERVERS_POOLING = "1_Pooling"
# Not an object: txtai takes the mean if one names no mode.
REFUSED_POOLING = ["not for programs that pool on their own: see README.md"]
# vLLM, like other programs that use `architectures`, refuses an unknown name and shows it;
# transformers and sentence-transformers use `model_type`.
REFUSED_ARCHITECTURE = "NotForServersThatPoolOnTheirOwn_SeeTheReadme"
# Old versions of text-embeddings-inference need these two keys as well.
_OTHER_MODES = ("pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens")
# transformers 4 and 5 both have this class; 5 would write the name of one that 4 does not have.
_TOKENIZER_CLASS = "PreTrainedTokenizerFast"


def write_pooling(folder: Path, hidden_size: int, readout: str) -> None:
    """Write a Pooling module's config.json. readout: cls or mean."""
    modes = dict.fromkeys(_OTHER_MODES, False)
    modes |= {key: mode == readout for key, mode in POOLING_MODES.items()}
    write_json(folder / "config.json", {"word_embedding_dimension": hidden_size} | modes)


def refuse_servers(folder: Path) -> None:
    """Make servers refuse a folder that transformers and sentence-transformers can still open.

    No module of modules.json may be in 1_Pooling/.
    """
    write_json(folder / SERVERS_POOLING / "config.json", REFUSED_POOLING)
    _name_architectures(folder, [REFUSED_ARCHITECTURE])


def refuse_without_prompts(folder: Path) -> None:
    """Make Infinity refuse a folder with a default prompt too: it opens it with
    sentence-transformers, but leaves out the prompts. It needs a first name in `architectures`;
    vLLM refuses an empty list as well."""
    _name_architectures(folder, [])


def _name_architectures(folder: Path, names: list[str]) -> None:
    config = read_json(folder / "config.json")
    write_json(folder / "config.json", config | {"architectures": names})


def serve_graph(folder: Path, hidden_size: int, max_tokens: int) -> None:
    """Write the files that servers need in addition to model.onnx, whose output is the vector.

    text-embeddings-inference uses the output sentence_embedding without pooling, but requires a
    pooling file; it cuts texts by sentence_bert_config.json only. fastembed before 0.9 requires
    special_tokens_map.json, and treats the tokens in it as special in a text.
    """
    write_pooling(folder / SERVERS_POOLING, hidden_size, "cls")
    write_max_tokens(folder, max_tokens)
    write_json(folder / "special_tokens_map.json", {})
    _name_architectures(folder, [REFUSED_ARCHITECTURE])


def write_max_tokens(folder: Path, max_tokens: int) -> None:
    """Write sentence_bert_config.json with the maximum number of tokens, including the template."""
    length = {"max_seq_length": max_tokens, "do_lower_case": False}
    write_json(folder / "sentence_bert_config.json", length)


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Write a transformers tokenizer whose tokenizer.json keeps typed special tokens as text.

    transformers finds the special tokens in tokenizer_config.json, and their ids in the vocabulary.
    """
    tokenizer.save_pretrained(str(folder))
    path = folder / "tokenizer.json"
    rules = without_special_tokens(read_json(path))
    Tokenizer.from_str(json.dumps(rules, ensure_ascii=False)).save(str(path))
    config = read_json(folder / "tokenizer_config.json")
    write_json(folder / "tokenizer_config.json", config | {"tokenizer_class": _TOKENIZER_CLASS})


def without_special_tokens(rules: dict[str, Any]) -> dict[str, Any]:
    """Return the rules of tokenizer.json without special tokens that it would find in a text.

    The template is added by ids and does not need them. The ids of all added tokens stay valid:
    missing ones are added to a vocabulary that is a table (WordPiece, BPE). A Unigram vocabulary is
    a list with scores, so a token that it lacks stays an added one. Runs of blanks, which
    ModernBERT has, go too: a text has none left, and normalised they would be empty and match
    between all letters.
    """
    added, vocabulary = rules["added_tokens"], rules["model"]["vocab"]
    if isinstance(vocabulary, dict):
        vocabulary = vocabulary | {token["content"]: token["id"] for token in added}
        rules = rules | {"model": rules["model"] | {"vocab": vocabulary}}
        entries = set(vocabulary)
    else:
        rules, entries = without_special_pieces(rules), {piece for piece, _ in vocabulary}
    kept = [
        token
        for token in added
        if token["content"] not in entries or (not token["special"] and token["content"].strip())
    ]
    return rules | {"added_tokens": kept}
