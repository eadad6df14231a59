"""Model folders: Hugging Face models that sentence-transformers reads in the same way.

The folder's tokenizer contains the template: its post-processor puts the template's token ids
around the sentence, its normaliser applies the full-stop rule, and special tokens typed in a
sentence stay text. `WordWeights` then gives weight 0 to every token except the one that is read,
and mean pooling returns the vector of that token. With several masks the last one becomes a token
of its own, [READOUT], whose embedding is a copy of the mask's. plain_tokenizer/ has the tokenizer
without the template, which `SentenceEncoder` and further training use.
"""

from __future__ import annotations

import copy
import os
import re
import warnings
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, normalizers, processors
from torch import nn

from cotbert_core.encoder.backbone import PLAIN_TOKENIZER
from cotbert_core.encoder.heads import HEAD_FILE, TanhHead
from cotbert_core.encoder.locations import PROMPTS_FILE
from cotbert_core.encoder.mlm import with_mlm_head
from cotbert_core.encoder.pooling_files import save_pooling_config
from cotbert_core.encoder.prefixes import prefix_length, save_prefixes
from cotbert_core.encoder.prompts import DOCUMENT
from cotbert_core.files import atomic_folder, write_json, write_text
from cotbert_core.saving import server_files
from cotbert_core.saving.lineage import CARD_FILE
from cotbert_core.saving.model_card import card_text
from cotbert_core.saving.saved_encoder import SavedEncoder
from cotbert_core.templates.tokenizing import is_byte_level
from cotbert_core.templates.wrapping import BoundTemplate

READOUT_TOKEN = "[READOUT]"
# The papers' rule adds a full stop at the end, unless the last character is one of . ? " '
# White space is folded before, so $ is the end of the text alone. At \z, tokenizers before 0.21
# (transformers before 4.47) adds nothing.
FULL_STOP_PLACE = r"(?<=[^.?\"'])$"
# White space as in str.split(): Python also counts four control characters, \s does not.
WHITE_SPACE = r"[\s\x1c-\x1f]+"
# A name in sentence-transformers' own namespace: for any other name it would ask the user for
# trust_remote_code, which does not help.
_NOT_FOR_SENTENCE_TRANSFORMERS = {
    "idx": 0,
    "name": "0",
    "path": "",
    "type": "sentence_transformers.models.only_cotbert_core_SentenceEncoder_reads_this_folder",
}
# Every tokenizer class of transformers shows this version in its error. A missing file is not
# enough: transformers 5 would then make a tokenizer of five tokens without a warning.
ONLY_HERE = "cotbert_core.SentenceEncoder alone reads this folder: see README.md"
_NOT_FOR_TRANSFORMERS = {
    "version": ONLY_HERE,
    "added_tokens": [],
}


def save_encoder(encoder: SavedEncoder, path: Path) -> None:
    """Write the folder `path` completely or not at all; UserError if it is not empty."""
    with atomic_folder(path) as folder:
        _write_folder(encoder, folder)
    if not encoder.is_portable:
        warnings.warn(
            "only cotbert_core.SentenceEncoder can open the saved folder, because "
            f"{encoder.not_carried}: sentence-transformers, MLflow and transformers' tokenizers do "
            "not support that and refuse the folder",
            stacklevel=3,
        )


def _write_folder(encoder: SavedEncoder, folder: Path) -> None:
    plain = encoder.backbone.tokenizer.hf
    plain.save_pretrained(str(folder / PLAIN_TOKENIZER))
    tokenizer, read_token = template_tokenizer(encoder, encoder.in_tokenizer)
    if encoder.is_portable:
        server_files.save_tokenizer(tokenizer, folder)
    else:
        write_json(folder / "tokenizer.json", _NOT_FOR_TRANSFORMERS)
    model = copy.deepcopy(encoder.backbone.model).cpu()
    if read_token == READOUT_TOKEN:
        copy_embedding(model, plain.mask_token_id, tokenizer.convert_tokens_to_ids(read_token))
    save_prefixes(model, folder)
    head = encoder.backbone.vocabulary
    model = model if head is None else with_mlm_head(model, head)
    model.save_pretrained(str(folder))
    _write_modules(encoder, tokenizer, read_token, folder)
    if encoder.not_served is not None:
        server_files.refuse_servers(folder)
    if encoder.prompts.get(DOCUMENT):
        server_files.refuse_without_prompts(folder)
    if encoder.head is not None:
        save_file(_cpu_weights(encoder.head), str(folder / HEAD_FILE))
    make_readable(folder)
    save_pooling_config(encoder.pooling, folder, prefixed=prefix_length(model) > 0)
    write_text(folder / CARD_FILE, card_text(encoder, read_token, encoder.metadata))


def make_readable(folder: Path) -> None:
    """Give safetensors files the mode of any new file; the library makes them private."""
    mask = os.umask(0)
    os.umask(mask)
    for path in folder.rglob("*.safetensors"):
        path.chmod(0o666 & ~mask)


def template_tokenizer(encoder: SavedEncoder, bound: BoundTemplate) -> tuple[Any, str | None]:
    """Return the tokenizer that adds this template itself, and the token that is read."""
    from transformers import PreTrainedTokenizerFast

    plain = encoder.backbone.tokenizer.hf
    backend = Tokenizer.from_str(plain.backend_tokenizer.to_str())
    backend.no_truncation()
    backend.no_padding()
    read_token = plain.mask_token if encoder.pooling.readout == "mask" else None
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
    room = encoder.max_length + encoder.bound.length
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend, model_max_length=room, split_special_tokens=True, **special
    )
    return tokenizer, read_token


def _normalizer(encoder: SavedEncoder, backend: Tokenizer) -> Any:
    """Return a normaliser that folds white space and adds the full stop and the leading blank.

    The library also applies it to each word that was added to the vocabulary, which it then looks
    for: it must not change them.
    """
    steps: list[Any] = [normalizers.Replace(Regex(WHITE_SPACE), " "), normalizers.Strip()]
    words = [re.escape(token.content) for token in encoder.backbone.tokenizer.added_words]
    prompts = [re.escape(p.strip()) for p in encoder.prompts.values() if p.strip()]
    if encoder.pooling.full_stop:
        # A prompt alone stays as it is: the text after it is empty.
        alone = "".join(rf"(?<!\A{text})" for text in (*prompts, *words))
        steps.append(normalizers.Replace(Regex(alone + FULL_STOP_PLACE), "."))
    if encoder.pooling.leading_blank and is_byte_level(backend):
        steps += _leading_blank(prompts, words)
    if backend.normalizer is not None:
        steps.append(backend.normalizer)
    return normalizers.Sequence(steps)


def _leading_blank(prompts: list[str], words: list[str]) -> list[Any]:
    """Return normalisers that put a blank before a text, unless it begins with a prompt, whose
    first token has none, or is an added word; both are patterns."""
    blank = normalizers.Prepend(" ")
    without = [rf"(?:{'|'.join(prompts)})(?: |\z)"] if prompts else []
    without += [rf"(?:{'|'.join(words)})\z"] if words else []
    if not without:
        return [blank]
    return [blank, normalizers.Replace(Regex(rf"\A (?={'|'.join(without)})"), "")]


def _template_processor(backend: Tokenizer, before: list[int], after: list[int]) -> Any:
    """Return a post-processor that puts token ids before and after a sentence."""
    names = {i: f"<{i}>" for i in (*before, *after)}
    return processors.TemplateProcessing(
        single=[*(names[i] for i in before), "$A", *(names[i] for i in after)],
        pair=None,
        special_tokens=[
            {"id": name, "ids": [i], "tokens": [backend.id_to_token(i)]}
            for i, name in names.items()
        ],
    )


def copy_embedding(model: Any, source: int, target: int) -> None:
    """Copy the embedding of the token `source` to `target`, and add that row if necessary."""
    if model.get_input_embeddings().num_embeddings <= target:
        model.resize_token_embeddings(target + 1, mean_resizing=False)
    with torch.no_grad():
        weight = model.get_input_embeddings().weight
        weight[target] = weight[source]


def _write_modules(
    encoder: SavedEncoder, tokenizer: Any, read_token: str | None, folder: Path
) -> None:
    """Write modules.json and the small modules after the Transformer.

    If these modules cannot represent the pooling, modules.json names a module that does not exist,
    so that opening the folder fails instead of giving different vectors.
    """
    if not encoder.is_portable:
        write_json(folder / "modules.json", [_NOT_FOR_SENTENCE_TRANSFORMERS])
        return
    modules = [("", "Transformer")]
    if read_token is not None:
        modules.append(("1_WordWeights", "WordWeights"))
        _write_word_weights(tokenizer, read_token, folder / "1_WordWeights")
    readout = "mean" if read_token is not None else encoder.pooling.readout
    # A server would take 1_Pooling/ for the only module after the Transformer.
    modules.append(("1_Pooling" if encoder.not_served is None else "2_Pooling", "Pooling"))
    server_files.write_pooling(folder / modules[-1][0], encoder.backbone.hidden_size, readout)
    if isinstance(encoder.head, TanhHead):
        modules.append((f"{len(modules)}_Dense", "Dense"))
        _write_dense(encoder.head, folder / modules[-1][0])
    if encoder.pooling.normalize:
        modules.append((f"{len(modules)}_Normalize", "Normalize"))
        (folder / modules[-1][0]).mkdir()
    listing = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(modules)
    ]
    write_json(folder / "modules.json", listing)
    server_files.write_max_tokens(folder, tokenizer.model_max_length)
    values: dict[str, Any] = {"similarity_fn_name": "cosine"}
    if prompts := encoder.prompts:
        default = DOCUMENT if prompts[DOCUMENT] else None
        values |= {"prompts": prompts, "default_prompt_name": default}
    write_json(folder / PROMPTS_FILE, values)


def _cpu_weights(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().cpu().contiguous() for name, value in module.state_dict().items()}


def _write_dense(head: TanhHead, folder: Path) -> None:
    """Write the head as a Dense module of sentence-transformers."""
    size = head.dense.out_features
    config = {"in_features": size, "out_features": size, "bias": True}
    activation = "torch.nn.modules.activation.Tanh"
    write_json(folder / "config.json", config | {"activation_function": activation})
    weights = {f"linear.{name}": value for name, value in _cpu_weights(head.dense).items()}
    save_file(weights, str(folder / "model.safetensors"))


def _write_word_weights(tokenizer: Any, read_token: str, folder: Path) -> None:
    """Write a WordWeights module with weight 1 for the token that is read and 0 for all others."""
    vocabulary = [str(t) for t in tokenizer.convert_ids_to_tokens(range(len(tokenizer)))]
    config = {"vocab": vocabulary, "word_weights": {read_token: 1.0}, "unknown_word_weight": 0.0}
    write_json(folder / "config.json", config)
    weight = torch.zeros(len(vocabulary), 1)
    weight[vocabulary.index(read_token)] = 1.0
    save_file({"emb_layer.weight": weight}, str(folder / "model.safetensors"))
