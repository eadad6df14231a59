"""Prompts: the texts that an encoder expects before a sentence, such as E5's "query: ".

A sentence-transformers folder names them in config_sentence_transformers.json. The default prompt
precedes every sentence, so it is part of how the encoder reads one; the others are for the caller
to choose, and `cotbert search` puts the one named query before its queries.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cotbert_core.encoder.backbone import load_tokenizer
from cotbert_core.errors import UserError
from cotbert_core.files import read_object
from cotbert_core.templates.template_texts import Template

PROMPTS_FILE = "config_sentence_transformers.json"
QUERY = "query"


def named_prompts(folder: Path) -> tuple[dict[str, str], str | None]:
    """Return the prompts of a sentence-transformers folder by name, and the default one's name."""
    file = folder / PROMPTS_FILE
    values = read_object(file) if file.is_file() else {}
    prompts, default = values.get("prompts") or {}, values.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(p, str) for p in prompts.values()):
        raise UserError(f"{str(file)!r} has prompts that are not texts: copy the folder again")
    if default is not None and default not in prompts:
        raise UserError(
            f"{str(file)!r} has the default prompt {default!r:.80} and no prompt of that name: "
            "copy the folder again"
        )
    return prompts, default


def prompt_template(prompt: str, name: str) -> tuple[Template, int]:
    """Return a template that gives a sentence the same tokens as a prompt before it, and how many
    tokens the prompt has.

    name: the encoder, for its tokenizer. Raises UserError for a prompt whose last token would
    change with the sentence, which a template cannot express.
    """
    template, tokenizer = Template(prompt + Template.slot), load_tokenizer(name)
    whole = tokenizer([f"{prompt}a"], None, in_template=False).flat.tolist()
    before = tokenizer([template.parts[0]], None, in_template=False).flat.tolist()
    if whole != before + tokenizer(["a"], None).flat.tolist():
        raise UserError(
            f"encoder {name!r} has the default prompt {prompt!r}, which its tokenizer joins with "
            "the sentence: end the prompt in a blank, or give --template"
        )
    return template, len(before)


def with_default_prompt(
    fields: dict[str, Any], folder: Path, name: str, included: bool
) -> dict[str, Any]:
    """Return the fields of a PoolingConfig with the default prompt of a folder, if it has one.

    fields: those of the folder's modules, whose max_length counts the prompt's tokens too.
    included: whether the pooling includes the prompt's tokens.
    """
    prompts, default = named_prompts(folder)
    if default is None or not prompts[default].strip():
        return fields
    if not included:
        raise UserError(
            f"encoder {name!r} leaves its prompt out of the mean, which is not supported: give "
            "--template '[X]' to read it without a prompt, or use sentence-transformers"
        )
    (template, taken), length = prompt_template(prompts[default], name), fields.get("max_length")
    if length is not None:
        if taken >= length:
            raise UserError(
                f"encoder {name!r} takes {length} tokens and its default prompt has {taken}: "
                "give --template with a shorter one"
            )
        length -= taken
    return {**fields, "template": template, "max_length": length}
