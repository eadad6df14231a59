"""Which library runs an encoder in the workers of a job."""

from __future__ import annotations

from typing import get_args

import pytest

from cotbert_core.choices import Backend
from pipelines.runtime import inference


@pytest.mark.parametrize(
    ("asked", "gpus", "chosen"),
    [("auto", True, "torch"), ("auto", False, "openvino"), ("openvino", True, "openvino")],
)
def test_an_int8_folder_uses_the_gpus_of_a_cluster(monkeypatch, asked, gpus, chosen):
    """Which the driver need not have: choose_backend takes OpenVINO there."""
    monkeypatch.setattr(inference, "choose_backend", lambda *_: "openvino")
    monkeypatch.setattr(inference, "has_gpus", lambda: gpus)
    assert inference.choose_library(asked, None, "auto") == chosen


def test_each_library_is_run_by_its_own_function():
    """With another name torch would compute, and the manifest would name the other library."""
    assert {*inference.LIBRARIES, "auto"} == {*get_args(Backend)}
