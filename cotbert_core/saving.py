"""Model folders: a Hugging Face model that sentence-transformers reads as we do, without code.

The template moves into the folder's tokenizer: its post-processor puts the template's token ids
around the sentence, its normaliser applies the full-stop rule, and special tokens typed in a
sentence stay text. `WordWeights` then weighs every token 0 but the one that is read, and mean
pooling returns that one's vector. With several masks the last becomes a token of its own,
[READOUT], whose embedding copies the mask's. The tokenizer without all this is kept in
plain_tokenizer/, for ourselves: training goes on from it, and so does `SentenceEncoder`.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from tokenizers import AddedToken, Regex, Tokenizer, normalizers, processors

from cotbert_core.backbone import PLAIN_TOKENIZER, locate_encoder
from cotbert_core.errors import UserError
from cotbert_core.templates import Template
from cotbert_core.tokenizing import is_byte_level

if TYPE_CHECKING:
    from cotbert_core.encoder import SentenceEncoder

READING_FILE = "cotbert.json"
READOUT_TOKEN = "[READOUT]"
# Where the papers' rule adds a full stop: at the end, after a character that is none of . ? " '
FULL_STOP_PLACE = r"(?<=[^.?\"'])\z"
# What str.split() splits at: Python counts four control characters as white space, \s does not.
WHITE_SPACE = r"[\s\x1c-\x1f]+"
_POOLING_MODES = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean"}


def load_reading(name: str) -> dict[str, Any]:
    """The fields of a Reading that the folder of an encoder NAME remembers, else its pooling."""
    folder = Path(locate_encoder(name))
    if (folder / READING_FILE).is_file():
        values = _read_json(folder / READING_FILE)
        values.pop("format")
        template = values.pop("template")
        return values | {"template": Template(**template) if template else None}
    if (folder / "modules.json").is_file():
        return _sentence_transformers_reading(folder)
    return {}


def _sentence_transformers_reading(folder: Path) -> dict[str, Any]:
    """Readout, length and normalisation of a sentence-transformers folder."""
    reading: dict[str, Any] = {}
    for module in json.loads((folder / "modules.json").read_text(encoding="utf-8")):
        kind = module["type"].rsplit(".", 1)[-1]
        if kind == "Transformer":
            # sentence-transformers 6 keeps the limit with the tokenizer, which says 1e30 for none.
            limit = _read_json(folder / "sentence_bert_config.json").get("max_seq_length")
            limit = limit or _read_json(folder / "tokenizer_config.json").get("model_max_length")
            # [CLS] and [SEP] count towards it there, not here.
            reading["max_length"] = limit - 2 if limit and limit < 1e30 else None
        elif kind == "Pooling":
            reading["readout"] = _pooling_mode(folder / module["path"] / "config.json")
        elif kind == "Normalize":
            reading["normalize"] = True
        else:
            raise UserError(
                f"encoder {str(folder)!r} has a {kind} module, which is not read here: give "
                "--readout and a folder without modules.json, or encode it with "
                "sentence-transformers"
            )
    return reading


def _pooling_mode(config: Path) -> str:
    values = _read_json(config)
    modes = [mode for key, mode in _POOLING_MODES.items() if values.get(key)]
    named = values.get("pooling_mode")
    modes += [named] if isinstance(named, str) and named in _POOLING_MODES.values() else []
    others = [k for k, v in values.items() if k.startswith("pooling_mode_") and v is True]
    if len(modes) != 1 or len(others) > 1:
        raise UserError(f"{config} names a pooling other than cls or mean: give --readout")
    return modes[0]


def _read_json(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def save_encoder(encoder: SentenceEncoder, path: Path) -> None:
    """Write `path` whole or not at all."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{str(path)!r} already holds something: give a new folder")
    partial = path.with_name(path.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        _write_folder(encoder, partial)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    if path.exists():
        path.rmdir()
    partial.rename(path)


def _write_folder(encoder: SentenceEncoder, folder: Path) -> None:
    plain = encoder.backbone.tokenizer.hf
    plain.save_pretrained(str(folder / PLAIN_TOKENIZER))
    tokenizer, read_token = _reading_tokenizer(encoder)
    tokenizer.save_pretrained(str(folder))
    model = copy.deepcopy(encoder.backbone.model).cpu()
    if read_token == READOUT_TOKEN:
        _copy_embedding(model, plain.mask_token_id, tokenizer.convert_tokens_to_ids(read_token))
    model.save_pretrained(str(folder))
    _write_modules(encoder, tokenizer, read_token, folder)
    _make_readable(folder)
    _write_reading(encoder, folder)


def _make_readable(folder: Path) -> None:
    """safetensors writes its files for their owner alone; give them the mode of any new file."""
    mask = os.umask(0)
    os.umask(mask)
    for path in folder.rglob("*.safetensors"):
        path.chmod(0o666 & ~mask)


def _reading_tokenizer(encoder: SentenceEncoder) -> tuple[Any, str | None]:
    """The folder's tokenizer, which wraps the template itself, and the token that is read."""
    from transformers import PreTrainedTokenizerFast

    plain, bound = encoder.backbone.tokenizer.hf, encoder.bound
    backend = Tokenizer.from_str(plain.backend_tokenizer.to_str())
    backend.no_truncation()
    backend.no_padding()
    read_token = plain.mask_token if encoder.reading.readout == "mask" else None
    after, before = list(bound.after), list(bound.before)
    if read_token is not None and bound.stages > 1:
        read_token = READOUT_TOKEN
        backend.add_special_tokens([AddedToken(READOUT_TOKEN, special=True, normalized=False)])
        side = after if bound.mask_id in after else before
        last = len(side) - 1 - side[::-1].index(bound.mask_id)
        side[last] = cast(int, backend.token_to_id(READOUT_TOKEN))
    backend.normalizer = _normalizer(encoder, backend)
    backend.post_processor = _template_processor(backend, before, after)
    names = ("pad_token", "mask_token", "cls_token", "sep_token", "unk_token")
    special = {n: getattr(plain, n) for n in names if getattr(plain, n) is not None}
    room = encoder.max_length + bound.length
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend, model_max_length=room, split_special_tokens=True, **special
    )
    return tokenizer, read_token


def _normalizer(encoder: SentenceEncoder, backend: Tokenizer) -> Any:
    """White space folded, a full stop added, a blank put first where words are told by blanks."""
    steps: list[Any] = [normalizers.Replace(Regex(WHITE_SPACE), " "), normalizers.Strip()]
    if encoder.reading.full_stop:
        steps.append(normalizers.Replace(Regex(FULL_STOP_PLACE), "."))
    if encoder.reading.template is not None and is_byte_level(backend):
        steps.append(normalizers.Prepend(" "))
    if backend.normalizer is not None:
        steps.append(backend.normalizer)
    return normalizers.Sequence(steps)


def _template_processor(backend: Tokenizer, before: list[int], after: list[int]) -> Any:
    """A post-processor that puts these ids around a sentence."""
    names = {i: f"<{i}>" for i in (*before, *after)}
    return processors.TemplateProcessing(
        single=[*(names[i] for i in before), "$A", *(names[i] for i in after)],
        pair=None,
        special_tokens=[
            {"id": name, "ids": [i], "tokens": [backend.id_to_token(i)]}
            for i, name in names.items()
        ],
    )


def _copy_embedding(model: Any, source: int, target: int) -> None:
    """Give the token `target` the embedding of `source`, adding the row if it is not there."""
    if model.get_input_embeddings().num_embeddings <= target:
        model.resize_token_embeddings(target + 1, mean_resizing=False)
    with torch.no_grad():
        weight = model.get_input_embeddings().weight
        weight[target] = weight[source]


def _write_modules(
    encoder: SentenceEncoder, tokenizer: Any, read_token: str | None, folder: Path
) -> None:
    """modules.json and the small modules behind the Transformer."""
    modules = [("", "Transformer")]
    if read_token is not None:
        modules.append(("1_WordWeights", "WordWeights"))
        _write_word_weights(tokenizer, read_token, folder / "1_WordWeights")
    readout = "mean" if read_token is not None else encoder.reading.readout
    modules.append((f"{len(modules)}_Pooling", "Pooling"))
    _write_json(
        folder / modules[-1][0] / "config.json",
        {"word_embedding_dimension": encoder.dimension}
        | {key: mode == readout for key, mode in _POOLING_MODES.items()},
    )
    if encoder.reading.normalize:
        modules.append((f"{len(modules)}_Normalize", "Normalize"))
        (folder / modules[-1][0]).mkdir()
    listing = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(modules)
    ]
    _write_json(folder / "modules.json", listing)
    length = {"max_seq_length": tokenizer.model_max_length, "do_lower_case": False}
    _write_json(folder / "sentence_bert_config.json", length)
    _write_json(folder / "config_sentence_transformers.json", {"similarity_fn_name": "cosine"})


def _write_word_weights(tokenizer: Any, read_token: str, folder: Path) -> None:
    """Weight 1 for the token that is read, 0 for every other."""
    from safetensors.torch import save_file

    vocabulary = [str(t) for t in tokenizer.convert_ids_to_tokens(range(len(tokenizer)))]
    config = {"vocab": vocabulary, "word_weights": {read_token: 1.0}, "unknown_word_weight": 0.0}
    _write_json(folder / "config.json", config)
    weight = torch.zeros(len(vocabulary), 1)
    weight[vocabulary.index(read_token)] = 1.0
    save_file({"emb_layer.weight": weight}, str(folder / "model.safetensors"))


def _write_reading(encoder: SentenceEncoder, folder: Path) -> None:
    reading = encoder.reading
    template = reading.template
    values = {
        "format": 1,
        "template": vars(template) if template else None,
        "readout": reading.readout,
        "max_length": reading.max_length,
        "full_stop": reading.full_stop,
        "normalize": reading.normalize,
        "method": reading.method,
        "settings": reading.settings,
    }
    _write_json(folder / READING_FILE, values)


def _write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
