"""The public names of the core."""

from __future__ import annotations

import pytest

import cotbert_core


def test_every_public_name_is_there():
    assert set(cotbert_core.__all__) <= {*cotbert_core._HOME, "__version__"}
    assert all(getattr(cotbert_core, name) is not None for name in cotbert_core.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Encoder'"):
        _ = cotbert_core.Encoder
