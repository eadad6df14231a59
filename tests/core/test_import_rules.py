"""What importing the core costs, and its public names."""

from __future__ import annotations

import subprocess
import sys

import pytest

import cotbert_core


@pytest.mark.parametrize(
    "statement",
    [
        "import cotbert_core",
        "import cotbert_core.settings",
        "from cotbert_core import TEMPLATES, UserError",
    ],
)
def test_light_parts_import_without_torch(statement):
    heavy = "{'torch', 'transformers', 'tokenizers', 'scipy', 'ray', 'mlflow'}"
    code = f"import sys; {statement}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there():
    assert set(cotbert_core.__all__) <= {*cotbert_core._HOME, "__version__"}
    assert all(getattr(cotbert_core, name) is not None for name in cotbert_core.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Encoder'"):
        _ = cotbert_core.Encoder
