"""Prompts: the texts that an encoder expects before a sentence, such as E5's "query: ".

A sentence-transformers folder names them in config_sentence_transformers.json. The default prompt
precedes every sentence, so it is part of how the encoder reads one; the one named query precedes
queries, the short texts by which others are searched; the rest are for the caller to choose.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cotbert_core.encoder.backbone import load_tokenizer
from cotbert_core.encoder.locations import PROMPTS_FILE
from cotbert_core.errors import UserError
from cotbert_core.files import read_object
from cotbert_core.templates.template_texts import Template
from cotbert_core.templates.tokenizing import SentenceTokenizer

QUERY, DOCUMENT = "query", "document"


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


def prompt_template(prompt: str) -> Template:
    """Return the template that puts a prompt before a sentence."""
    return Template(prompt + Template.slot)


def prompt_of_template(template: Template) -> str:
    """Return the prompt of a template of `prompt_template`."""
    return template.text.removesuffix(template.slot)


def prompt_tokens(template: Template, tokenizer: SentenceTokenizer, name: str) -> int:
    """Return how many tokens a prompt has, in a template of `prompt_template`.

    name: the encoder, for the error. Raises UserError for a prompt whose last token would change
    with the sentence: a template does not give the same tokens as the prompt before the sentence.
    """
    prompt = prompt_of_template(template)
    whole = tokenizer([f"{prompt}a"], None, in_template=False).flat.tolist()
    before = tokenizer([template.parts[0]], None, in_template=False).flat.tolist()
    if whole != before + tokenizer(["a"], None).flat.tolist():
        raise UserError(
            f"encoder {name!r} has the prompt {prompt!r}, which its tokenizer joins with the "
            "sentence: end the prompt in a blank, or give --template"
        )
    return len(before)


def prompt_left_out(name: str) -> UserError:
    """Return the error for an encoder NAME whose pooling excludes the tokens of its prompts."""
    return UserError(
        f"encoder {name!r} leaves its prompt out of the mean, which is not supported: give "
        "--template '[X]' to read it without a prompt, or use sentence-transformers"
    )


def with_default_prompt(
    fields: dict[str, Any],
    folder: Path,
    name: str,
    included: bool,
    tokenizer: SentenceTokenizer | None = None,
) -> dict[str, Any]:
    """Return the fields of a PoolingConfig with the default prompt of a folder, if it has one.

    fields: those of the folder's modules, whose max_length counts the prompt's tokens too.
    included: whether the pooling includes the prompt's tokens. tokenizer: that of the encoder NAME;
    None: it is loaded.
    """
    prompts, default = named_prompts(folder)
    if default is None or not prompts[default].strip():
        return fields
    if not included:
        raise prompt_left_out(name)
    template, length = prompt_template(prompts[default]), fields.get("max_length")
    taken = prompt_tokens(template, tokenizer or load_tokenizer(name), name)
    if length is not None:
        if taken >= length:
            raise UserError(
                f"encoder {name!r} takes {length} tokens and its default prompt has {taken}: "
                "give --template with a shorter one"
            )
        length -= taken
    return {**fields, "template": template, "max_length": length}
