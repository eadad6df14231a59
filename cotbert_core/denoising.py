"""Template denoising under the name that other people's scripts import."""

from cotbert_core.encoder.template_denoising import template_bias

__all__ = ["template_bias"]
