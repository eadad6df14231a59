"""MODEL on a command line that takes several: an encoder and how to read it, in one word."""

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
    """A MODEL of the command line: an encoder NAME and how to read it, by its own way if None."""

    name: str
    template: str | None = None
    readout: str | None = None

    @classmethod
    def parse(cls, text: str) -> ModelSpec:
        """NAME, NAME,template=T or NAME,readout=R, from the right; a folder's name stays whole."""
        name, options = text, dict[str, str]()
        while not Path(name).exists() and (found := list(_OPTION.finditer(name))):
            key = found[-1][1]
            if key in options:
                raise UserError(f"model {text!r} names its {key} twice: give one")
            options[key] = name[found[-1].end() :].strip()
            name = name[: found[-1].start()]
        strange = re.search(r",\s*(\w+)=", name)
        if strange and not Path(name).exists():
            raise unknown("model option", strange[1], OPTIONS)
        return cls(name, options.get("template"), options.get("readout"))

    def open(self, precision: Precision = "auto") -> OpenModel:
        """Load the encoder; UserError where it cannot be read so."""
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
    """encoder: gives (N, D) vectors, under the readout's name and from the template's mask."""

    backbone: Backbone
    encoder: SentenceEncoder | Encode
    readout: str
    template: Template | None


def numbered(labels: Sequence[str]) -> list[str]:
    """The labels, the second of equal ones followed by `no. 2`, and so on."""
    return [
        f"{label} no. {before + 1}" if (before := labels[:place].count(label)) else label
        for place, label in enumerate(labels)
    ]


class Read(Protocol):
    """An encoder that is open: under which readout's name, and from which template's mask."""

    @property
    def readout(self) -> str: ...

    @property
    def template(self) -> Template | None: ...


def label_of(spec: ModelSpec, model: Read) -> str:
    """The encoder and how it is read. Of a folder the last two names: one alone is `model`."""
    folder = Path(spec.name)
    short = "/".join(folder.resolve().parts[-2:]) if folder.exists() else spec.name
    how = f"[{model.readout.upper()}]" if model.readout in ("mask", "cls") else model.readout
    # Two names may stand for one template: the one that was given comes first.
    known = [name for name in (spec.template, *TEMPLATES) if name in TEMPLATES]
    named = [name for name in known if name and TEMPLATES[name] == model.template]
    return " ".join([short, how, *named[:1]])
