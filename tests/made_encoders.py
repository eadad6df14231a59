"""Encoders that tests make of an encoder's folder, and the folders that they are saved to."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from cotbert_core import SentenceEncoder
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.heads import HEADS
from cotbert_core.encoder.pooling_config import PoolingConfig
from cotbert_core.templates.template_texts import resolve_template


def made_encoder(
    folder: str,
    family: str,
    readout: Any,
    template: str | None = None,
    head: Any = None,
    **pooling: Any,
) -> SentenceEncoder:
    """An encoder with this pooling, and a head of random weights if one is named.

    template: `{f}` in it stands for the family; a template has a full stop unless pooling says no.
    """
    torch.manual_seed(0)
    backbone = load_backbone(folder)
    opened = None if template is None else resolve_template(template.format(f=family))
    pooling = {"full_stop": opened is not None, **pooling}
    of_head = None if head is None else HEADS[head](backbone.model.config).eval()
    return SentenceEncoder(backbone, PoolingConfig(readout, opened, head=head, **pooling), of_head)


def save_quietly(encoder: SentenceEncoder, folder: Path) -> Path:
    """Save an encoder without a warning that other libraries refuse the folder."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        encoder.save_pretrained(folder)
    return folder


def with_encoders(names: str, *cases: tuple[Any, ...]) -> pytest.MarkDecorator:
    """Parametrize a test by an encoder, `bert` or `roberta`, and by further values.

    names: the arguments after `encoder_folder`. A test need not have every case with both.
    """
    return pytest.mark.parametrize(
        ("encoder_folder", *names.split()), cases, indirect=["encoder_folder"], ids=str
    )
