"""The argument MODEL of commands that take several: an encoder with a readout or template."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cotbert_core.encoder.backbone import Backbone, load_backbone
from cotbert_core.encoder.pooling import READOUTS
from cotbert_core.errors import UserError, unknown
from cotbert_core.evaluation.pairs import Encode
from cotbert_core.readouts import FEATURES, FeatureOptions, build_features
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.settings import Precision
from cotbert_core.templates.template_texts import TEMPLATES, Template

OPTIONS = ("readout", "template")
_OPTION = re.compile(rf",\s*({'|'.join(OPTIONS)})=")


@dataclass(frozen=True)
class ModelSpec:
    """A MODEL: an encoder NAME, and a template and readout (None: its own)."""

    name: str
    template: str | None = None
    readout: str | None = None

    @classmethod
    def parse(cls, text: str) -> ModelSpec:
        """Parse NAME, NAME,template=T or NAME,readout=R, from the right.

        The name of an existing folder may contain such options.
        """
        name, options = text, dict[str, str]()
        while not Path(name).exists() and (found := list(_OPTION.finditer(name))):
            key = found[-1][1]
            if key in options:
                raise UserError(f"model {text!r} names its {key} twice: give it once")
            options[key] = name[found[-1].end() :].strip()
            name = name[: found[-1].start()]
        strange = re.search(r",\s*(\w+)=", name)
        if strange and not Path(name).exists():
            raise unknown("model option", strange[1], OPTIONS)
        return cls(name, options.get("template"), options.get("readout"))

    def open(self, precision: Precision = "auto") -> OpenModel:
        """Load the encoder; UserError if it does not support the readout or template."""
        name = self.readout
        if name is None or name in READOUTS:
            encoder = SentenceEncoder.from_pretrained(self.name, self.template, name)
            pooling = encoder.pooling
            return OpenModel(encoder.backbone, encoder, pooling.readout, pooling.template)
        if name not in FEATURES:
            raise unknown("readout", name, {*READOUTS, *FEATURES})
        backbone, options = load_backbone(self.name), FeatureOptions(template=self.template)
        features = build_features(name, backbone, options, precision=precision)
        return OpenModel(backbone, features, name, getattr(features, "template", None))


@dataclass(frozen=True)
class OpenModel:
    """A loaded encoder. encoder: returns (N, D) vectors by `readout` and `template`."""

    backbone: Backbone
    encoder: SentenceEncoder | Encode
    readout: str
    template: Template | None


def numbered(labels: Sequence[str]) -> list[str]:
    """Return the labels; the second of equal labels gets `no. 2`, and so on."""
    return [
        f"{label} no. {before + 1}" if (before := labels[:place].count(label)) else label
        for place, label in enumerate(labels)
    ]


class Read(Protocol):
    """The readout's name and the template of a loaded encoder."""

    @property
    def readout(self) -> str: ...

    @property
    def template(self) -> Template | None: ...


def label_of(spec: ModelSpec, model: Read) -> str:
    """Return the encoder's name with its readout and template.

    The name of a folder is its last two parts, since the last alone is often `model`.
    """
    folder = Path(spec.name)
    short = "/".join(folder.resolve().parts[-2:]) if folder.exists() else spec.name
    how = f"[{model.readout.upper()}]" if model.readout in ("mask", "cls") else model.readout
    # A template may have two names; the given one is preferred.
    known = [name for name in (spec.template, *TEMPLATES) if name in TEMPLATES]
    named = [name for name in known if name and TEMPLATES[name] == model.template]
    return " ".join([short, how, *named[:1]])
