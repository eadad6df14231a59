"""What inference servers read of a folder and compute from it, each as one small function.

A rule takes a folder and texts and returns the vectors (N, D) that the server would send, or
raises RefusedError where it would not start. The encoder itself is transformers' in every one:
servers differ in what they read around it. Written from the sources named in the docstrings.
"""

from __future__ import annotations

import json
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

# The fields that candle's BertConfig has no default for.
CANDLE_FIELDS = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"),
    *("intermediate_size", "hidden_act", "hidden_dropout_prob", "max_position_embeddings"),
    *("type_vocab_size", "initializer_range", "layer_norm_eps", "pad_token_id"),
)


class RefusedError(Exception):
    """The server does not start with this folder."""


def read(folder: Path, name: str, missing: str | None = None) -> Any:
    """A JSON file of the folder; None, or RefusedError with `missing` as its reason, where there is
    none."""
    path = folder / name
    if path.is_file():
        return json.loads(path.read_text(encoding="utf-8"))
    if missing is not None:
        raise RefusedError(missing)
    return None


# text-embeddings-inference


def tei_pooling(folder: Path) -> str:
    """huggingface/text-embeddings-inference router/src/lib.rs, get_backend_model_type and
    PoolConfig: 1_Pooling/config.json alone, [CLS] where a BERT has none (a28ad28)."""
    config = read(folder, "config.json", "`config.json` not found")
    if not isinstance(config.get("architectures"), list):
        raise RefusedError("Failed to parse `config.json`")
    pooling = read(folder, "1_Pooling/config.json")
    if pooling is None:
        if "bert" not in config["model_type"].lower():
            raise RefusedError("could not find a pooling configuration")
        return "cls"
    if not isinstance(pooling, dict):
        raise RefusedError("Failed to parse `1_Pooling/config.json`")
    if pooling.get("pooling_mode") in ("cls", "mean"):
        return str(pooling["pooling_mode"])
    if any(f"pooling_mode_{mode}" not in pooling for mode in ("cls_token", "mean_tokens")):
        raise RefusedError("Failed to parse `1_Pooling/config.json`")
    for mode in ("cls", "mean"):
        if pooling["pooling_mode_cls_token" if mode == "cls" else "pooling_mode_mean_tokens"]:
            return mode
    raise RefusedError("Pooling config is not supported")


def tei_rows(folder: Path, texts: list[str]) -> tuple[list[list[int]], int]:
    """core/src/tokenization.rs (265deb2) and router/src/lib.rs: tokenizer.json by the library
    tokenizers with its normaliser and post-processor, no padding, cut (on the right) to the
    max_seq_length of sentence_bert_config.json instead of what tokenizer.json says, else to the
    positions there are. Positions of RoBERTa begin behind the padding's. An empty text is refused.
    """
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:  # it raises Exception itself
        raise RefusedError(f"tokenizer.json: {error}") from None
    config = read(folder, "config.json", "`config.json` not found")
    offset = config["pad_token_id"] + 1 if config["model_type"] == "roberta" else 0
    limit = read(folder, "sentence_bert_config.json") or {}
    tokenizer.no_padding()
    tokenizer.enable_truncation(
        limit.get("max_seq_length") or config["max_position_embeddings"] - offset
    )
    assert all(texts), "`inputs` cannot be empty"
    return [tokenizer.encode(text).ids for text in texts], offset


def tei_candle(folder: Path, texts: list[str], dense: bool = True) -> np.ndarray:
    """backends/candle/src/models/bert.rs (4d94445) and dense.rs (0d1b698): model.safetensors, the
    pooling, then the Dense modules of a modules.json that holds Transformer, Pooling, Dense and
    Normalize alone. `dense`: whether the backend knows Dense."""
    pooling = tei_pooling(folder)
    rows, offset = tei_rows(folder, texts)
    config = read(folder, "config.json")
    if config.keys() & set(CANDLE_FIELDS) != set(CANDLE_FIELDS):
        raise RefusedError("Model is not supported")
    model = encoder(folder)
    vectors = []
    for ids in rows:
        given = torch.tensor([ids])
        positions = torch.arange(given.shape[1])[None] + offset
        with torch.no_grad():
            hidden = model(
                input_ids=given,
                token_type_ids=torch.zeros_like(given),
                position_ids=positions,
            ).last_hidden_state
        vectors.append(hidden[0, 0] if pooling == "cls" else hidden[0].mean(0))
    modules = read(folder, "modules.json") or []
    known = {f"sentence_transformers.models.{m}" for m in ("Transformer", "Pooling", "Normalize")}
    known |= {"sentence_transformers.models.Dense"}
    if dense and {module["type"] for module in modules} <= known:
        return through_dense(folder, modules, torch.stack(vectors))
    return torch.stack(vectors).numpy()


# backends/python (33b0392): nothing behind the pooling.
tei_python = partial(tei_candle, dense=False)


def tei_onnx(folder: Path, texts: list[str]) -> np.ndarray:
    """backends/ort/src/lib.rs (04a0215): model.onnx or onnx/model.onnx; the output
    sentence_embedding as it is, else last_hidden_state or token_embeddings pooled."""
    pooling = tei_pooling(folder)
    rows, _ = tei_rows(folder, texts)
    config = read(folder, "config.json", "Failed to read `config.json`")
    session = onnx_session(folder, ("model.onnx", "onnx/model.onnx"))
    width = max(len(row) for row in rows)
    ids = np.array([row + [config["pad_token_id"]] * (width - len(row)) for row in rows])
    mask = np.array([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    outputs = run(session, ids, mask)
    if "sentence_embedding" in outputs:
        return outputs["sentence_embedding"]
    hidden = outputs.get("last_hidden_state", outputs.get("token_embeddings"))
    if hidden is None:
        raise RefusedError(f"Unknown output keys: {sorted(outputs)}")
    if pooling == "cls":
        return hidden[:, 0]
    return (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)


# vLLM


def vllm(folder: Path, texts: list[str]) -> np.ndarray:
    """vllm-project/vllm model_executor/models/registry.py, _try_resolve_transformers: an
    architecture that neither it nor transformers has is refused. transformers_utils/config.py,
    get_pooling_config (e23031f): the first Pooling and Normalize of modules.json by their exact
    names, every other module skipped; adapters.py, _load_st_projector (3b2aedb): Dense too. A
    longer text than max_seq_length is refused."""
    import transformers

    config = read(folder, "config.json", "no config.json")
    names = config.get("architectures") or []
    if not any(hasattr(transformers, name) for name in names):
        raise RefusedError(f"Model architectures {names} are not supported for now.")
    tokenizer = auto_tokenizer(folder)
    modules = read(folder, "modules.json") or []
    first = {module["type"].rsplit(".", 1)[-1]: module for module in reversed(modules)}
    pooling = "cls"  # the default of BertEmbeddingModel
    if "Pooling" in first:
        modes = read(folder, f"{first['Pooling']['path']}/config.json") or {}
        chosen = next((key for key, value in modes.items() if value is True), "")
        pooling = chosen.removeprefix("pooling_mode_").split("_")[0] or pooling
    rows = tokenizer(texts, padding=True, return_tensors="pt")
    limit = (read(folder, "sentence_bert_config.json") or {}).get("max_seq_length", 512)
    assert rows["input_ids"].shape[1] <= limit, "longer than max_model_len"
    with torch.no_grad():
        hidden = encoder(folder)(**rows).last_hidden_state
    mask = rows["attention_mask"][..., None]
    vectors = hidden[:, 0] if pooling == "cls" else (hidden * mask).sum(1) / mask.sum(1)
    vectors = torch.from_numpy(through_dense(folder, modules, vectors))
    return (torch.nn.functional.normalize(vectors) if "Normalize" in first else vectors).numpy()


# Infinity, fastembed, txtai


def infinity_torch(folder: Path, texts: list[str]) -> np.ndarray:
    """infinity-emb 0.0.78, transformer/embedder/sentence_transformer.py: sentence-transformers'
    own tokenizer and forward, without any prompt, then unit length; `architectures` must hold a
    name."""
    from sentence_transformers import SentenceTransformer

    if not read(folder, "config.json", "no config.json")["architectures"]:
        raise RefusedError("list index out of range")
    try:
        model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    except Exception as error:  # whatever a library raises for a folder that is not for it
        raise RefusedError(str(error)) from None
    return model.encode(texts, prompt="", normalize_embeddings=True, show_progress_bar=False)


def infinity_optimum(folder: Path, texts: list[str]) -> np.ndarray:
    """infinity-emb 0.0.78, transformer/embedder/optimum.py, with optimum-onnx 0.1.0, whose
    ORTModelForFeatureExtraction takes the output last_hidden_state: any *.onnx, then the first
    token (its default pooling)."""
    files = [str(path.relative_to(folder)) for path in sorted(folder.glob("**/*.onnx"))]
    session = onnx_session(folder, files)
    config = read(folder, "config.json", "no config.json")
    limit = config["max_position_embeddings"]
    rows = auto_tokenizer(folder)(
        texts, max_length=limit, padding=True, truncation="longest_first", return_tensors="np"
    )
    if "last_hidden_state" not in [output.name for output in session.get_outputs()]:
        raise RefusedError("KeyError: 'last_hidden_state'")
    outputs = run(session, rows["input_ids"], rows["attention_mask"])
    return outputs["last_hidden_state"][:, 0]


def fastembed(folder: Path, texts: list[str]) -> np.ndarray:
    """fastembed 0.9.1, common/preprocessor_utils.py and text/custom_text_embedding.py with pooling
    disabled: tokenizer.json and tokenizer_config.json, whose model_max_length is the limit, and
    the special tokens of special_tokens_map.json, which older ones ask for."""
    from tokenizers import Tokenizer

    session = onnx_session(folder, ("model.onnx",))
    rules = read(folder, "tokenizer_config.json", "Could not find tokenizer_config.json")
    special = read(folder, "special_tokens_map.json", "Could not find special_tokens_map.json")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(rules["model_max_length"])
    tokenizer.add_special_tokens([token for token in special.values() if isinstance(token, str)])
    pad = (tokenizer.padding or {}).get("pad_id", read(folder, "config.json")["pad_token_id"])
    tokenizer.enable_padding(pad_id=pad, pad_token=rules["pad_token"])
    rows = tokenizer.encode_batch(texts)
    ids, mask = ([getattr(r, part) for r in rows] for part in ("ids", "attention_mask"))
    return next(iter(run(session, np.array(ids), np.array(mask)).values()))


def txtai(folder: Path, texts: list[str]) -> np.ndarray:
    """txtai 9.14, models/pooling/factory.py and base.py, without a `method`: the tokenizer and
    encoder of transformers, and the mean unless 1_Pooling/config.json says cls; here without the
    prompts."""
    pooling = read(folder, "1_Pooling/config.json") or {}
    if not isinstance(pooling, dict):
        raise RefusedError("'list' object has no attribute 'get'")
    rows = auto_tokenizer(folder)(texts, padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        hidden = encoder(folder)(**rows).last_hidden_state
    if pooling.get("pooling_mode_cls_token") and not pooling.get("pooling_mode_mean_tokens"):
        return hidden[:, 0].numpy()
    mask = rows["attention_mask"][..., None]
    return ((hidden * mask).sum(1) / mask.sum(1)).numpy()


# What they share


def encoder(folder: Path) -> Any:
    """The folder's weights as transformers opens them: the same function in every server."""
    from transformers import AutoModel

    if not (folder / "model.safetensors").is_file():
        raise RefusedError("model.safetensors not found")
    return AutoModel.from_pretrained(folder).eval()


def auto_tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder)
    except Exception as error:  # whatever it raises for a tokenizer.json that it cannot read
        raise RefusedError(str(error)) from None


def through_dense(folder: Path, modules: list[Any], vectors: torch.Tensor) -> np.ndarray:
    """(N, D) vectors behind the Dense modules, whose activation is tanh here."""
    from safetensors.torch import load_file

    for module in modules:
        if module["type"].endswith(".Dense"):
            weights = load_file(folder / module["path"] / "model.safetensors")
            vectors = torch.tanh(vectors @ weights["linear.weight"].T + weights["linear.bias"])
    return vectors.numpy()


def onnx_session(folder: Path, names: Any) -> Any:
    """An ONNX Runtime session of the first of these files that is there."""
    for name in names:
        if (folder / name).is_file():
            return _opened(folder / name)
    raise RefusedError("no ONNX file")


@lru_cache(1)
def _opened(path: Path) -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(str(path))


def run(session: Any, ids: np.ndarray, mask: np.ndarray) -> dict[str, np.ndarray]:
    """The graph's outputs by name."""
    names = [output.name for output in session.get_outputs()]
    inputs = {"input_ids": ids.astype(np.int64), "attention_mask": mask.astype(np.int64)}
    return dict(zip(names, session.run(None, inputs), strict=True))
