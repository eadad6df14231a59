"""Settings: unknown keys refused, every fault told at once, flat and nested forms the same."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import pytest
from pydantic import ValidationError

from cotbert_core.denoising import DENOISERS
from cotbert_core.errors import UserError
from cotbert_core.methods import METHODS
from cotbert_core.readout import READOUTS
from cotbert_core.settings import (
    CotBertSettings,
    Denoise,
    Settings,
    TrainSettings,
    build,
    flatten,
    override,
)

# Flat changes of valid settings and what the fault must say.
FAULTS = {
    "method.temperature": (0, "method.temperature is 0: input should be greater than 0"),
    "method.denoise": ("pads", "method.denoise is 'pads': input should be 'none', 'position' or"),
    "method.pad_positions": ("other", "method.pad_positions is 'other'"),
    "method.name": ("simcse", "method.name is 'simcse': input should be 'cot-bert'"),
    "optimizer.schedule": ("cosine", "optimizer.schedule is 'cosine'"),
    "optimizer.learning_rate": (-1e-5, "optimizer.learning_rate is -1e-05"),
    "optimizer.clip": (0.0, "optimizer.clip is 0.0"),
    "precision": ("fp16", "precision is 'fp16': input should be 'auto', 'bf16' or 'fp32'"),
    "dropout": (1.0, "dropout is 1.0: input should be less than 1"),
    "epochs": (0, "epochs is 0"),
    "max_length": ("long", "max_length is 'long': input should be a valid integer"),
    "templates.anchor": ("cot-brt/anchor", "unknown template 'cot-brt/anchor'"),
    "templates.positive": ("no slot [MASK]", r"holds the slot [X] 0 times"),
    "nonsense": (1, "setting 'nonsense' is unknown"),
    "method.temprature": (0.05, "setting 'method.temprature' is unknown"),
    "optimiser.clip": (1.0, "setting 'optimiser' is unknown"),
    "batch_size.x": (1, "setting 'batch_size.x' is unknown"),
}


def fault_of(changes):
    with pytest.raises(UserError) as caught:
        override(TrainSettings(), changes)
    return str(caught.value)


@pytest.mark.parametrize("key", FAULTS)
def test_a_wrong_setting_is_named_with_its_value_and_the_rule(key):
    value, expected = FAULTS[key]
    assert expected in fault_of({key: value})


@pytest.mark.parametrize("temperature", [-0.05, float("nan")])
def test_a_temperature_that_is_not_positive_is_refused(temperature):
    assert "method.temperature is" in fault_of({"method.temperature": temperature})


def test_all_faults_are_told_at_once():
    wrong = {k: v for k, (v, _) in FAULTS.items() if k != "batch_size.x"}
    told = fault_of(wrong)
    assert all(FAULTS[key][1] in told for key in wrong)


def test_faults_between_settings_are_told_at_once():
    changes = {
        "batch_size": 10,
        "workers": 4,
        "templates.negative": None,
        "max_steps": 3,
    }
    told = fault_of(changes)
    assert "batch_size is 10: it must be a multiple of workers (4)" in told
    assert "method.extended is true without templates.negative" in told
    mended = {"batch_size": 12, "method.extended": False, "max_steps": 4}
    assert override(TrainSettings(), {**changes, **mended}).workers == 4


def test_unknown_keys_of_nested_values_are_refused():
    with pytest.raises(UserError, match=r"'templates\.negatve' is unknown"):
        build(TrainSettings, {"templates": {"negatve": None}})


def test_flatten_and_override_are_inverse():
    changes = {
        "encoder": "folder",
        "batch_size": 64,
        "method.temperature": 0.1,
        "method.extended": False,
        "templates.negative": None,
        "optimizer.schedule": "constant",
    }
    settings = override(TrainSettings(), changes)
    flat = flatten(settings)
    assert {k: flat[k] for k in changes} == changes
    assert override(TrainSettings(), flat) == settings
    assert not any(isinstance(value, dict) for value in flat.values())
    assert build(TrainSettings, settings.model_dump()) == settings


def test_override_leaves_the_original_alone():
    settings = TrainSettings()
    before = flatten(settings)
    override(settings, {"method.temperature": 1.0})
    assert flatten(settings) == before
    with pytest.raises(ValidationError, match="frozen"):
        settings.epochs = 2


def test_the_defaults_are_the_papers():
    flat = flatten(TrainSettings())
    papers = {
        "batch_size": 256,
        "max_length": 32,
        "epochs": 1,
        "eval_every": 125,
        "method.temperature": 0.05,
        "method.denoise": "pad",
        "method.pad_positions": "aligned",
        "method.extended": True,
        "optimizer.learning_rate": 1e-5,
        "optimizer.weight_decay": 0.0,
        "optimizer.clip": 1.0,
        "optimizer.warmup_steps": 0,
        "optimizer.schedule": "linear",
    }
    assert {k: flat[k] for k in papers} == papers


def test_choices_and_dictionaries_hold_the_same_names():
    assert set(METHODS) == set(get_args(CotBertSettings.model_fields["name"].annotation))
    assert {*DENOISERS, "none"} == set(get_args(Denoise))
    assert set(READOUTS) == {"mask", "cls", "mean"}


def test_every_settings_class_is_frozen_and_refuses_unknown_keys():
    kinds = Settings.__subclasses__()
    assert len(kinds) >= 4
    for kind in kinds:
        assert kind.model_config["frozen"]
        assert kind.model_config["extra"] == "forbid"


def test_the_settings_page_has_every_setting_with_its_default():
    page = (Path(__file__).parents[2] / "docs" / "settings.md").read_text(encoding="utf-8")
    told = dict(re.findall(r"^\| `([a-z_.]+)` \| `([^`]+)` \|", page, re.MULTILINE))
    defaults = flatten(TrainSettings())
    assert told.keys() == defaults.keys()
    for name, default in defaults.items():
        shown = default if isinstance(default, str) else json.dumps(default)
        assert told[name] == shown, name
