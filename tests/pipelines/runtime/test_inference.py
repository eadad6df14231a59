"""Which library runs an encoder in the workers of a job."""

from __future__ import annotations

from types import SimpleNamespace
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


def test_an_int8_folder_without_openvino_is_said_to_be_run_by_torch(monkeypatch, tmp_path, capsys):
    (tmp_path / "int8").mkdir()
    encoder = SimpleNamespace(backbone=SimpleNamespace(name=str(tmp_path)))
    monkeypatch.setattr(inference, "choose_backend", lambda *_: "torch")
    monkeypatch.setattr(inference, "has_gpus", lambda: False)
    for found in (object(), None):
        monkeypatch.setattr(inference, "find_spec", lambda _, found=found: found)
        assert inference.choose_library("auto", encoder, "auto") == "torch"
        said = capsys.readouterr().err
        assert ("has an int8 graph, and openvino is not installed" in said) is (found is None)
    assert inference.choose_library("auto", encoder, "fp32") == "torch"
    assert capsys.readouterr().err == ""


def test_each_library_is_run_by_its_own_function():
    """With another name torch would compute, and the manifest would name the other library."""
    assert {*inference.LIBRARIES, "auto"} == {*get_args(Backend)}
