"""Templates from word definitions: T5 fills the blanks around a word and its definition.

This is PromptBERT section 4.2, after LM-BFF's generation (Gao et al. 2021, section 5.2). A
definition takes the place of the sentence and its word the place of the mask; the texts with which
T5 fills the blanks, the same for all definitions, are the rest of the template.
Letters: E definitions, K outputs in the beam, L tokens of an output so far, V vocabulary.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cotbert_core.encoder.locations import hub_answers
from cotbert_core.errors import UserError, first_line
from cotbert_core.template_search.joint_beam import Output, joint_beam
from cotbert_core.templates.template_texts import Template
from cotbert_core.training.devices import current_device

SENTINELS = ("<extra_id_0>", "<extra_id_1>", "<extra_id_2>")
# The place of the definition -> (T5's input, the template made from its two blanks). The word
# follows a blank, so the mask does too; T5 decides whether a blank follows it.
FORMS = {
    "before": ("{definition} <extra_id_0> {word} <extra_id_1>", "[X]{first} [MASK]{second}"),
    "after": ("<extra_id_0> {word} <extra_id_1> {definition}", "{first} [MASK]{second} [X]"),
}


@dataclass(frozen=True)
class Definition:
    """A word and the text of its definition."""

    word: str
    text: str


@dataclass(frozen=True)
class Generator:
    """A T5 model. start: id of the token before an output. sentinels: ids of SENTINELS. words: (V,)
    bool, tokens that may fill a blank."""

    model: Any
    tokenizer: Any
    start: int
    sentinels: tuple[int, ...]
    words: Tensor


@dataclass(frozen=True)
class Generated:
    """The generated templates.

    templates: text and score, best first. malformed: number of outputs that are not a template.
    repeated: number of outputs that repeat a template.
    """

    templates: list[tuple[str, float]]
    malformed: int
    repeated: int


def load_generator(name: str) -> Generator:
    """Load a T5 model by folder or hub name, in fp32, onto this process's device.

    Raises UserError for a model that cannot be loaded or has no sentinel tokens.
    """
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    tokenizer = _from_pretrained(AutoTokenizer, name)
    vocabulary = tokenizer.get_vocab()
    if any(sentinel not in vocabulary for sentinel in SENTINELS):
        raise UserError(
            f"model {name!r} has no tokens {SENTINELS[0]} to {SENTINELS[-1]}: give a model of the "
            "T5 family, which fills such blanks"
        )
    weights = {"dtype": torch.float32, "use_safetensors": True, "output_loading_info": True}
    model, found = _from_pretrained(AutoModelForSeq2SeqLM, name, **weights)
    # transformers would give them random values.
    if missing := sorted(found["missing_keys"]):
        raise UserError(
            f"model {name!r} lacks {len(missing)} of its weights, such as {missing[0]!r}: copy the "
            "whole folder again"
        )
    if max(vocabulary.values()) >= model.config.vocab_size:
        raise UserError(
            f"model {name!r} has {model.config.vocab_size:,} token embeddings and a tokenizer of "
            f"{len(vocabulary):,} tokens: give it the tokenizer that belongs to it"
        )
    # T5Config has no default for it, and a config.json may lack it.
    start = getattr(model.config, "decoder_start_token_id", None)
    if start is None:
        raise UserError(
            f"model {name!r} has no decoder_start_token_id in its config.json: add that of the "
            f"token its decoder starts with, in T5 the padding token ({tokenizer.pad_token_id})"
        )
    device = current_device()
    special = {*tokenizer.all_special_ids}
    special |= {number for token, number in vocabulary.items() if "<extra_id_" in token}
    words = torch.zeros(model.config.vocab_size, dtype=torch.bool)
    words[sorted({*vocabulary.values()} - special)] = True
    return Generator(
        model=model.to(device).eval(),
        tokenizer=tokenizer,
        start=start,
        sentinels=tuple(vocabulary[sentinel] for sentinel in SENTINELS),
        words=words.to(device),
    )


def _from_pretrained(auto_class: Any, name: str, **kwargs: Any) -> Any:
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    folder = os.path.isdir(name)
    if not folder and (name.startswith((".", "/", "~")) or name.count("/") > 1):
        raise UserError(
            f"model folder {name!r} does not exist: give an existing folder or a hub name"
        )
    location = str(Path(name).resolve()) if folder else name
    local = folder or not hub_answers()
    try:
        return auto_class.from_pretrained(
            location, local_files_only=local, trust_remote_code=False, **kwargs
        )
    except Exception as error:  # transformers and safetensors have no common error class
        raise UserError(
            f"model {name!r} cannot be loaded ({first_line(error)}): give a folder or hub name "
            "of the T5 family that this machine can reach"
        ) from error


@torch.inference_mode()
def fill_blanks(
    generator: Generator, definitions: Sequence[Definition], form: str, **search: Any
) -> list[Output]:
    """Return the outputs of one form that are likeliest for all definitions together, best first.

    search: the keywords of `joint_beam`.
    """
    states = [_encoded(generator, definition, form) for definition in definitions]

    def following(tokens: Tensor) -> Tensor:
        return _mean_log_probabilities(generator.model, states, tokens)

    return joint_beam(following, generator.start, generator.sentinels, generator.words, **search)


def _encoded(generator: Generator, definition: Definition, form: str) -> Tensor:
    """Return T5's encoder states (1, n, D) for a definition and its word between two blanks."""
    text = FORMS[form][0].format(definition=definition.text, word=definition.word)
    ids = generator.tokenizer(text, return_tensors="pt").input_ids.to(generator.model.device)
    states: Tensor = generator.model.get_encoder()(input_ids=ids).last_hidden_state
    return states


def _mean_log_probabilities(model: Any, states: Sequence[Tensor], tokens: Tensor) -> Tensor:
    """Return log P(next token | tokens, definition) (K, V), the mean over E definitions.

    states: E encoder states. tokens: (K, L) outputs so far, at most 22 tokens. They are read again
    in each step: the caches of all beams and definitions do not fit in memory.
    """
    from transformers.modeling_outputs import BaseModelOutput

    # Only the logits of the last token: those of all L tokens are L x V numbers per beam.
    head = model.get_output_embeddings()
    hook = head.register_forward_pre_hook(lambda _, inputs: (inputs[0][:, -1:],))
    try:
        total: Tensor | float = 0.0
        for state in states:
            encoded = BaseModelOutput(last_hidden_state=state.expand(len(tokens), -1, -1))
            output = model(encoder_outputs=encoded, decoder_input_ids=tokens, use_cache=False)
            total = total + torch.log_softmax(output.logits[:, -1].double(), dim=-1)
    finally:
        hook.remove()
    assert isinstance(total, Tensor)
    return total / len(states)


def templates_of(generator: Generator, outputs: dict[str, list[Output]], count: int) -> Generated:
    """Return the templates of each form's outputs, at most `count`, the likeliest first."""
    filled = [
        (template_text(generator.tokenizer, output.tokens, form), output.score)
        for form, found in outputs.items()
        for output in found
    ]
    filled.sort(key=lambda pair: -pair[1])
    valid = [(text, score) for text, score in filled if text is not None]
    best: dict[str, float] = {}
    for text, score in valid:
        best.setdefault(text, score)
    templates = list(best.items())[:count]
    return Generated(templates, len(filled) - len(valid), len(valid) - len(best))


def template_text(tokenizer: Any, tokens: Iterable[int], form: str) -> str | None:
    """Return the template of an output, or None unless it has [X] and [MASK] once each."""
    text = tokenizer.decode(
        list(tokens), skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
    parts = re.split("|".join(SENTINELS), text)
    if len(parts) != 4:
        return None
    first, second = parts[1], parts[2]
    text = " ".join(FORMS[form][1].format(first=first, second=second).split())
    try:
        return text if Template(text).stages == 1 else None
    except UserError:
        return None
