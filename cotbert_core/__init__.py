"""The mathematics and the model of the three papers, without Ray or MLflow.

Names are loaded on first use, so the command line can answer `--help` without importing torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cotbert_core.errors import UserError
    from cotbert_core.sentence_encoder import SentenceEncoder
    from cotbert_core.templates.template_texts import TEMPLATES, Template

__version__ = "0.1.0"
__all__ = ["TEMPLATES", "SentenceEncoder", "Template", "UserError", "__version__"]

_HOME = {
    "SentenceEncoder": "cotbert_core.sentence_encoder",
    "TEMPLATES": "cotbert_core.templates.template_texts",
    "Template": "cotbert_core.templates.template_texts",
    "UserError": "cotbert_core.errors",
}
_MODULES = ("denoising", "evaluation", "losses")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"cotbert_core.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'cotbert_core' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
