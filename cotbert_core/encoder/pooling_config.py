"""The pooling configuration: how sentence vectors are read from an encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cotbert_core.encoder.heads import HEADS
from cotbert_core.encoder.pooling import READOUTS
from cotbert_core.encoder.template_denoising import DENOISERS
from cotbert_core.errors import UserError, unknown
from cotbert_core.method_settings.bases import Denoise, HeadName, PadPositions
from cotbert_core.templates.template_texts import Template


@dataclass(frozen=True)
class PoolingConfig:
    """How sentence vectors are read from an encoder; stored in a saved folder.

    readout: a name in `READOUTS`. max_length: maximum number of tokens of a sentence, without the
    template; None: the encoder's limit. full_stop: apply the papers' evaluation rule, see
    `end_with_full_stop`. normalize: scale vectors to unit length. denoise: subtract the template's
    bias at inference too. head: a layer after the readout that is kept after training, see
    `cotbert_core.encoder.heads`. blank: put a blank before a sentence for a byte-level tokenizer
    even without a template. empty_blank: put that blank into a template for an empty sentence too,
    as the released code does. last: pairs of token ids, see `BoundTemplate`. method, settings: how
    the encoder was trained, for information. query: the template of queries, by which other texts
    are found; None: they are read like other texts.
    """

    readout: str = "mean"
    template: Template | None = None
    max_length: int | None = None
    full_stop: bool = False
    normalize: bool = False
    denoise: Denoise = "none"
    pad_positions: PadPositions = "aligned"
    head: HeadName | None = None
    blank: bool = False
    empty_blank: bool = False
    last: tuple[tuple[int, int], ...] = ()
    method: str | None = None
    settings: dict[str, Any] | None = None
    query: Template | None = None

    def __post_init__(self) -> None:
        if self.readout not in READOUTS:
            raise unknown("readout", self.readout, READOUTS)
        if self.readout == "mask":
            if self.template is None:
                raise UserError("readout is 'mask' and there is no template: give a template too")
            self.template.require_mask()
        if self.query is not None and (self.readout == "mask" or self.query.stages):
            raise UserError(
                f"the template of queries is {self.query.text!r} and the readout {self.readout}: "
                "only a template without [MASK] can be another one for queries"
            )
        if self.denoise not in (*DENOISERS, "none"):
            raise unknown("denoising mode", self.denoise, (*DENOISERS, "none"))
        if self.head is not None and self.head not in HEADS:
            raise unknown("head", self.head, HEADS)
        # JSON has lists but no tuples.
        object.__setattr__(self, "last", tuple((old, new) for old, new in self.last))
        if self.denoise != "none" and self.readout != "mask":
            raise UserError(
                f"denoise is {self.denoise!r} with the {self.readout} readout: denoising subtracts "
                "a template's mask vector; give a template and leave the readout out"
            )

    @property
    def leading_blank(self) -> bool:
        """Whether a sentence gets a leading blank for a byte-level tokenizer.

        The template `[X]`, by which a sentence is read without a prompt, adds none.
        """
        in_text = self.template is not None and self.template.text != self.template.slot
        return in_text or self.blank
