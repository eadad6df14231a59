"""The argument MODEL of commands that take several: an encoder with a readout or template."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cotbert_core.encoder.locations import encoder_path
from cotbert_core.errors import UserError, unknown
from cotbert_core.templates.template_texts import TEMPLATES
from pipelines.evaluating.options import EvaluateOptions
from pipelines.evaluating.readout_options import OpenReadout, check_readout, open_readout

OPTIONS = ("readout", "template")
# Models that are held in memory at once; 110 million weights take 440 MB.
MOST_OPEN = 2
_OPTION = re.compile(rf",\s*({'|'.join(OPTIONS)})=")


def options_of_model(common: EvaluateOptions, text: str) -> EvaluateOptions:
    """Return the options for a MODEL: NAME, NAME,template=T or NAME,readout=R, from the right.

    The name of an existing folder may contain such options.
    """
    name, named = text, dict[str, Any]()
    while not encoder_path(name).exists() and (found := list(_OPTION.finditer(name))):
        key = found[-1][1]
        if key in named:
            raise UserError(f"model {text!r} names its {key} twice: give it once")
        named[key] = name[found[-1].end() :].strip()
        name = name[: found[-1].start()]
    strange = re.search(r",\s*(\w+)=", name)
    if strange and not encoder_path(name).exists():
        raise unknown("model option", strange[1], OPTIONS)
    for key in OPTIONS:
        if key in named and getattr(common, key) is not None:
            raise UserError(
                f"model {text!r} names its {key}, and --{key} is given too: give only one"
            )
    return replace(common, model=name, **named)


def with_labels(
    models: Sequence[EvaluateOptions],
) -> tuple[list[str], list[OpenReadout | None]]:
    """Return a label for each model, and the opened model, None for each if there are many.

    All are opened before the first is scored, so that one that cannot be read does not stop the job
    halfway.
    """
    for options in models:
        check_readout(options)
    labels, kept = list[str](), list[OpenReadout | None]()
    for options in models:
        opened = open_readout(options, [])
        labels.append(label_of(options, opened))
        kept.append(opened if len(models) <= MOST_OPEN else None)
    return numbered(labels), kept


def numbered(labels: Sequence[str]) -> list[str]:
    """Return the labels; the second of equal labels gets `no. 2`, and so on."""
    return [
        f"{label} no. {before + 1}" if (before := labels[:place].count(label)) else label
        for place, label in enumerate(labels)
    ]


def label_of(options: EvaluateOptions, model: OpenReadout) -> str:
    """Return the encoder's name with its readout and template.

    The name of a folder is its last two parts, since the last alone is often `model`; never the
    root, with which MLflow would refuse the names of metrics.
    """
    folder = encoder_path(options.model)
    short = "/".join(folder.resolve().parts[1:][-2:]) if folder.exists() else options.model
    how = f"[{model.readout.upper()}]" if model.readout in ("mask", "cls") else model.readout
    # A template may have two names; the given one is preferred.
    known = [name for name in (options.template, *TEMPLATES) if name in TEMPLATES]
    named = [name for name in known if name and TEMPLATES[name] == model.template]
    if model.template is not None and not model.template.stages:
        named = [repr(model.template.text)]
    return " ".join([short, how, *named[:1]])
