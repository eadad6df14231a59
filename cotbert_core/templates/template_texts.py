"""Templates as text: one slot for the sentence, and any number of masks; the last one is read.

A template without a mask is a prompt, such as E5's "query: [X]": the encoder pools all tokens.

`cotbert_core.templates.wrapping` binds a Template to a tokenizer. `TEMPLATES` has every template of
the three papers by name. `[MASK]` stands for the mask token of any encoder. Blanks matter to
byte-level tokenizers (RoBERTa): ` .` and `.` are different tokens, and a blank at the end is a
token; WordPiece (BERT) ignores blanks. The groups `.../released` have the blanks of the released
code; docs/methods.md says how the others differ.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from cotbert_core.errors import UserError, did_you_mean


@dataclass(frozen=True)
class Template:
    """The text around a sentence.

    text: contains `slot` exactly once, otherwise UserError, and `mask` any number of times.
    """

    text: str
    slot: str = "[X]"
    mask: str = "[MASK]"

    def __post_init__(self) -> None:
        slots = self.text.count(self.slot)
        if slots != 1:
            raise UserError(
                f"template {self.text!r} has the slot {self.slot} {slots} times and must have it "
                f"once: put {self.slot} where the sentence goes"
            )

    @property
    def stages(self) -> int:
        """The number of masks (CoT-BERT section 3: two, for comprehension and summarization)."""
        return self.text.count(self.mask)

    @property
    def parts(self) -> tuple[str, str]:
        """The text before and after the slot.

        Blanks before the slot are removed, as in the papers' code: a byte-level tokenizer would
        make a token of them, and WordPiece ignores them.
        """
        before, after = self.text.split(self.slot)
        return before.rstrip(), after

    def require_mask(self) -> Template:
        """Return the template; UserError if it has no mask, where the sentence vector is read."""
        if self.stages == 0:
            raise UserError(
                f"template {self.text!r} has no {self.mask}: the sentence vector is read at the "
                f"last one; add {self.mask} to the text"
            )
        return self

    @property
    def at_inference(self) -> Template:
        """The template without blanks at its end.

        CoT-BERT's released code has such a blank in training and strips it for evaluation.
        """
        return replace(self, text=self.text.rstrip())


def resolve_template(name_or_text: str) -> Template:
    """Return a template by its name in TEMPLATES, or from a text with [X]."""
    if name_or_text in TEMPLATES:
        return TEMPLATES[name_or_text]
    if "[" in name_or_text or "MASK" in name_or_text.upper() or " " in name_or_text:
        return Template(name_or_text, mask=_mask_in(name_or_text))
    meant = did_you_mean(name_or_text, TEMPLATES)
    raise UserError(
        f"unknown template {name_or_text!r}{meant}: give a name that `cotbert templates` lists, or "
        "a text with [X]"
    )


def _mask_in(text: str) -> str:
    """Return how a text spells its mask; UserError for a spelling that would stay plain text."""
    spellings = sorted({*re.findall(r"\[mask\]|<mask>", text, re.IGNORECASE)})
    if len(spellings) > 1 or not {*spellings} <= {"[MASK]", "<mask>"}:
        raise UserError(
            f"template {text!r} spells the mask {' and '.join(spellings)}: write [MASK], which "
            "stands for the mask token of any encoder"
        )
    return spellings[0] if spellings else Template.mask


# CoT-BERT Table 3: the text after the sentence, as (anchor and positive, hard negative).
_COT_STAGES = {
    "": (
        "means [MASK] , so it can be summarized as [MASK] .",
        "does not mean [MASK] , so it cannot be summarized as [MASK] .",
    ),
    "/only-prefix": ("means [MASK].", "does not mean [MASK]."),
    "/only-suffix": ("can be summarized as [MASK].", "cannot be summarized as [MASK]."),
    "/irrelevant-prefix": ("can be summarized as [MASK].", "cannot be summarized as [MASK]."),
    "/static-prefix": (
        "means something, so it can be summarized as [MASK].",
        "does not mean something, so it cannot be summarized as [MASK].",
    ),
    "/reversed": (
        "can be summarized as [MASK], so it means [MASK].",
        "cannot be summarized as [MASK], so it does not mean [MASK].",
    ),
}


def _cot_templates(system: str, quoted: str) -> dict[str, Template]:
    templates: dict[str, Template] = {}
    for variant, (affirmed, denied) in _COT_STAGES.items():
        start = (
            "Penguin is a flightless bird, and the sentence"
            if variant == "/irrelevant-prefix"
            else "The sentence"
        )
        templates |= {
            f"{system}{variant}/anchor": Template(f"{start} of {quoted} {affirmed}"),
            f"{system}{variant}/positive": Template(f"{start} : {quoted} {affirmed}"),
            f"{system}{variant}/negative": Template(f"{start} : {quoted} {denied}"),
        }
    return templates


TEMPLATES: dict[str, Template] = {
    **_cot_templates("cot-bert", '"[X]"'),
    **_cot_templates("cot-roberta", "' [X] '"),
    "promptbert/anchor": Template('This sentence of "[X]" means [MASK] .'),
    "promptbert/positive": Template('This sentence : "[X]" means [MASK] .'),
    "promptbert/manual": Template('This sentence : "[X]" means [MASK] .'),
    "promptroberta/anchor": Template("This sentence : ' [X] ' means [MASK] ."),
    "promptroberta/positive": Template("The sentence : ' [X] ' means [MASK] ."),
    # The released code has no blank before the full stop, which is a different token for RoBERTa.
    "promptroberta/released/anchor": Template("This sentence : ' [X] ' means[MASK]."),
    "promptroberta/released/positive": Template("The sentence : ' [X] ' means[MASK]."),
    "denosent": Template('"[X]" means [MASK].'),
    "denosent/paper": Template("[X] means [MASK]."),
}
# The released code trains with a blank at the end, which is a token of its own for RoBERTa.
TEMPLATES |= {
    f"cot-roberta/released/{role}": Template(TEMPLATES[f"cot-roberta/{role}"].text + " ")
    for role in ("anchor", "positive", "negative")
}
