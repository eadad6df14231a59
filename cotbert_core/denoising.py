"""Public module of template denoising; the code is in cotbert_core.encoder.template_denoising."""

from cotbert_core.encoder.template_denoising import template_bias

__all__ = ["template_bias"]
