"""The pooling configuration of an encoder NAME: read from its folder, changed, and written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from cotbert_core.encoder.locations import POOLING_CONFIG_FILE, PROMPTS_FILE, small_files
from cotbert_core.encoder.pooling_config import PoolingConfig
from cotbert_core.encoder.prompts import (
    QUERY,
    named_prompts,
    prompt_left_out,
    prompt_template,
    with_default_prompt,
)
from cotbert_core.encoder.sentence_transformers_pooling import (
    invalid_value,
    sentence_transformers_pooling,
)
from cotbert_core.errors import UserError, require_tokens
from cotbert_core.files import part_of, read_object, write_json
from cotbert_core.method_settings.bases import Denoise
from cotbert_core.templates.template_texts import Template, resolve_template
from cotbert_core.templates.tokenizing import SentenceTokenizer

# The format of folders with trained prefixes, unknown to versions that would ignore them.
PREFIXED_FORMAT = 2
# The fields that are reset when the readout or template is replaced.
_REPLACED: dict[str, Any] = {
    "query": None,
    "normalize": False,
    "denoise": "none",
    "head": None,
    "last": (),
}


def resolve_pooling_config(
    name: str,
    template: Template | str | None = None,
    readout: str | None = None,
    max_length: int | None = None,
    denoise: Denoise | None = None,
    *,
    tokenizer: SentenceTokenizer | None = None,
) -> PoolingConfig:
    """Return the pooling configuration of an encoder NAME, with the given values replaced.

    template: a Template, a name or a text; read at its last mask unless readout is given. A prompt,
    which has no mask, only replaces the text around the sentence. max_length: tokens. None keeps
    the value in the encoder's folder. tokenizer: the encoder's; None: it is loaded if needed.
    """
    chosen = resolve_template(template) if isinstance(template, str) else template
    pooling = PoolingConfig(
        **load_pooling_config(name, prompted=chosen is None, tokenizer=tokenizer)
    )
    changes: dict[str, Any] = {}
    other = readout is not None and readout != pooling.readout
    masked = pooling.template is not None and pooling.template.stages > 0
    if chosen is not None and (chosen.stages or (other and masked)):
        changes = {"readout": readout or "mask", "full_stop": chosen.stages > 0}
        changes |= {"max_length": None, "template": chosen, **_REPLACED}
    else:
        if other:  # prompts stay, and the template of a mask goes with it
            changes = {"readout": readout, **_REPLACED, "query": pooling.query}
            changes["template"] = None if masked and readout != "mask" else pooling.template
        if chosen is not None and chosen != pooling.template:
            changes["template"] = chosen
            with suppress(UserError):  # the prompts of the folder are not usable, and not needed
                changes["query"] = _query_template(name, chosen)
    pooling = replace(pooling, **changes)
    if denoise is not None:
        pooling = replace(pooling, denoise=denoise)
    if max_length is not None:
        pooling = replace(pooling, max_length=require_tokens("max_length", max_length))
    return pooling


def load_pooling_config(
    name: str, *, prompted: bool = True, tokenizer: SentenceTokenizer | None = None
) -> dict[str, Any]:
    """Return the fields of a PoolingConfig for an encoder NAME.

    They come from cotbert.json, or from the modules and, if `prompted`, the prompts of a
    sentence-transformers folder; a folder with neither gives no fields. tokenizer: as in
    `resolve_pooling_config`.
    """
    folder = small_files(name)
    if (folder / POOLING_CONFIG_FILE).is_file():
        return _read_fields(folder)
    if (folder / "modules.json").is_file():
        fields = sentence_transformers_pooling(folder)
        included = fields.pop("include_prompt", True)
        if not prompted:
            return fields
        fields = with_default_prompt(fields, folder, name, included, tokenizer)
        return {**fields, "query": _query_template(name, fields.get("template"))}
    return {}


def readable_pooling(name: str) -> dict[str, Any]:
    """Return `load_pooling_config`, or no fields for modules that only sentence-transformers reads.

    It is for training, which only uses the encoder.
    """
    try:
        return load_pooling_config(name)
    except UserError:
        return {}


def prompt_of(fields: Mapping[str, Any]) -> Template | None:
    """Return the template without a mask in the fields of a PoolingConfig, if there is one."""
    template: Template | None = fields.get("template")
    return None if template is None or template.stages else template


def own_prompt(name: str) -> Template | None:
    """Return the template without a mask with which an encoder NAME reads sentences, if any."""
    return prompt_of(readable_pooling(name))


def query_template(name: str) -> Template | None:
    """Return the template without a mask with which an encoder NAME reads queries alone, if any."""
    template: Template | None = readable_pooling(name).get("query")
    return template


def _query_template(name: str, texts: Template | None) -> Template | None:
    """Return the prompt of an encoder NAME for queries alone, or None.

    texts: the template of other texts, which must be none or another of its prompts. Raises
    UserError if the mean leaves prompts out.
    """
    prompts, _ = _prompts(name)
    # An empty prompt is left out: --template '[X]' means that queries get no prompt either.
    others = [p + Template.slot for key, p in prompts.items() if key != QUERY and p]
    prompt = prompts.get(QUERY, "")
    if not prompt.strip() or (texts is not None and texts.text not in others):
        return None
    template = prompt_template(prompt)
    if template == texts:
        return None
    folder = small_files(name)
    modules = (folder / "modules.json").is_file()
    if modules and not sentence_transformers_pooling(folder).get("include_prompt", True):
        raise prompt_left_out(name)
    return template


def unread_notes(name: str, *, prompts: bool = True, dimensions: bool = True) -> list[str]:
    """Return notes on what sentence-transformers would do with an encoder NAME and this package
    does not.

    prompts, dimensions: False where the user has chosen a template or a number of dimensions, so
    that what the folder names does not matter.
    """
    notes = [unused_prompts(name) if prompts else None]
    notes += [_truncation_note(name)] if dimensions else []
    return [note for note in notes if note]


def _truncation_note(name: str) -> str | None:
    """Return a note on the dimensions that a sentence-transformers folder keeps of its vectors."""
    folder = small_files(name)
    if (folder / POOLING_CONFIG_FILE).is_file() or not (folder / PROMPTS_FILE).is_file():
        return None
    kept = read_object(folder / PROMPTS_FILE).get("truncate_dim")
    if kept is None:
        return None
    return (
        f"note: sentence-transformers keeps {kept} dimensions of the vectors of {name!r}, and "
        "here all are kept: `cotbert embed --truncate-dim`, or `dimensions` in a request to "
        "`cotbert serve`, keeps as many as it names"
    )


def unused_prompts(name: str) -> str | None:
    """Return a note on the prompts of an encoder NAME that precede no text unless they are given,
    without the one for queries; None if there are none."""
    prompts, default = _prompts(name)
    named = {key: text for key, text in prompts.items() if text.strip()}
    others = {key: text for key, text in named.items() if key not in (default, QUERY)}
    if not others:
        return None
    listed = ", ".join(f"{key} {text!r}" for key, text in others.items())
    how = "no prompt" if default is None else f"its default prompt {prompts[default]!r}"
    # Commands that train have no --template: they read an encoder as its folder says.
    return (
        f"note: texts are read with {how}, and the encoder names others: {listed}; to read them "
        "with one, make it the folder's default prompt ('Prompts' in docs/models.md), or give "
        f"--template {next(iter(others.values())) + Template.slot!r} to a command that has it"
    )


def _prompts(name: str) -> tuple[dict[str, str], str | None]:
    """Return the named prompts of an encoder NAME, and the name of the default one.

    A folder of this package has none: its prompt is in its template.
    """
    folder = small_files(name)
    return ({}, None) if (folder / POOLING_CONFIG_FILE).is_file() else named_prompts(folder)


def _read_fields(folder: Path) -> dict[str, Any]:
    file = folder / POOLING_CONFIG_FILE
    values = read_object(part_of(folder, POOLING_CONFIG_FILE))
    if values.pop("format", None) not in (1, PREFIXED_FORMAT):
        raise UserError(
            f"{file} is not of format 1 or {PREFIXED_FORMAT}: open the folder with the version "
            "that wrote it, or copy it again"
        )
    unexpected = sorted(set(values) - {field.name for field in fields(PoolingConfig)})
    if unexpected:
        raise UserError(
            f"{file} has the fields {', '.join(unexpected)}, which this version does not know: "
            "open the folder with the version that wrote it, or a newer one"
        )
    return _checked_fields(file, values)


def _checked_fields(file: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with the types of a PoolingConfig; UserError for any other type."""
    kinds = get_type_hints(PoolingConfig)
    known = {field.name for field in fields(Template)}
    for name, value in values.items():
        if name in ("denoise", "head") and isinstance(value, str):
            continue  # PoolingConfig checks the names itself
        if name in ("template", "query") and value is not None:
            if not isinstance(value, dict) or "text" not in value or set(value) - known:
                raise invalid_value(file, name, value)
            if not all(isinstance(part, str) and part for part in value.values()):
                raise invalid_value(file, name, value)
            continue
        try:
            # Validated as JSON, in which a tuple is a list.
            TypeAdapter(kinds[name]).validate_json(json.dumps(value), strict=True)
        except (ValidationError, RecursionError):
            raise invalid_value(file, name, value) from None
    length = values.get("max_length")
    if length is not None and length < 1:
        raise invalid_value(file, "max_length", length)
    templates = {name: values.get(name) for name in ("template", "query")}
    return values | {name: value and Template(**value) for name, value in templates.items()}


def save_pooling_config(pooling: PoolingConfig, folder: Path, *, prefixed: bool = False) -> None:
    """Write the configuration into a folder, for `load_pooling_config`.

    prefixed: whether the folder has trained prefixes.
    """
    version = {"format": PREFIXED_FORMAT if prefixed else 1}
    values = asdict(pooling)
    if pooling.query is None:  # unknown to versions that read all others
        del values["query"]
    write_json(folder / POOLING_CONFIG_FILE, version | values)
