"""The options of the readouts in `cotbert_core.readouts`, and a check for unused ones."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields

from cotbert_core.errors import UserError
from cotbert_core.method_settings.bases import Denoise
from cotbert_core.templates.template_texts import Template


@dataclass(frozen=True)
class FeatureOptions:
    """The options of all readouts.

    remove: biases of PromptBERT Table 3 to remove: frequent, subwords, case, punctuation.
    frequent_count: number of the most frequent tokens that `frequent` removes. top_k: number of
    tokens in eq. (3). denoise: none, position or pad. template: a Template, a name or a text.
    """

    remove: tuple[str, ...] = ()
    frequent_count: int = 36
    top_k: int = 200
    denoise: Denoise = "none"
    template: Template | str | None = None


def refuse_unused(readout: str, options: FeatureOptions, used: Collection[str]) -> None:
    """Raise UserError for an option that has no effect on the readout and is not at its default."""
    for field in fields(options):
        value = getattr(options, field.name)
        if field.name in used or value == field.default:
            continue
        if field.name == "denoise":
            raise UserError(
                f"denoise is {value!r} with the {readout} readout: denoising needs a template's "
                "mask; choose the readout mask or top-tokens, or leave denoise out"
            )
        shown = ",".join(value) if isinstance(value, tuple) else value
        raise UserError(
            f"{field.name} is {shown!r} with the {readout} readout, which does not use it: leave "
            "it out or choose another readout"
        )
