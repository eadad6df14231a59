"""Settings of the methods: whose they are, which templates each reads, and changing the method."""

from __future__ import annotations

import pytest

from cotbert_core.errors import UserError
from cotbert_core.method_settings import METHOD_SETTINGS
from cotbert_core.method_settings.papers import CotBertSettings
from cotbert_core.settings import ROLES, TrainSettings, build, flatten, override

NONE = {f"templates.{role}": None for role in ROLES}
COT = TrainSettings()
PROMPTED = "temperature, dev_reading, empty_sentence"
CHOSEN = "temperature, positive, rest_length"
POSITIVE_TOO = f"{CHOSEN}, dev_reading, empty_sentence"
ONE_MASK = "promptbert/anchor"


def fault_of(changes, settings=COT):
    with pytest.raises(UserError) as caught:
        override(settings, changes)
    return str(caught.value)


def templates_for(name):
    roles = METHOD_SETTINGS[name]().template_roles
    return NONE | {f"templates.{role}": f"cot-bert/{role}" for role in roles}


@pytest.mark.parametrize("method", [{}, {"temperature": 0.1}, {"name": None}, {"name": 3}])
def test_a_method_without_a_name_is_refused_with_the_names(method):
    with pytest.raises(UserError, match=r"method\.name is (None|3): give one of cot-bert"):
        build(TrainSettings, {"method": method})


def test_a_method_that_is_no_group_of_settings_is_refused():
    with pytest.raises(UserError, match="method is 'simcse': input should be a valid dictionary"):
        build(TrainSettings, {"method": "simcse"})


@pytest.mark.parametrize(
    ("name", "setting", "known"),
    [
        ("simcse", "layers", f"{CHOSEN}, readout, triples, keep_head"),
        ("tsdae", "temperature", "readout, deletion"),
        ("optiprompt", "extended", f"{PROMPTED}, head, replaced"),
        ("promptbert", "head", f"{POSITIVE_TOO}, denoise, pad_positions, freeze_bias"),
        ("cot-bert", "deletion", f"{POSITIVE_TOO}, denoise, pad_positions, freeze_bias, extended"),
    ],
)
def test_a_setting_of_another_method_is_refused_by_name(name, setting, known):
    message = fault_of({"method.name": name, **templates_for(name), f"method.{setting}": 1})
    assert message == f"setting 'method.{setting}' is unknown: method {name} has {known}"


@pytest.mark.parametrize("name", ["simcse", "tsdae", "optiprompt", "denosent"])
def test_denoising_without_a_template_bias_is_refused_with_the_reason(name):
    message = fault_of({"method.name": name, **templates_for(name), "method.denoise": "pad"})
    assert f"setting 'method.denoise' is unknown: method {name} has " in message
    assert message.endswith("; denoising needs a method that reads a template's mask")


def test_faults_of_a_methods_settings_are_reported_without_its_tag():
    changes = {"method.name": "denosent", "method.layers": 0, "method.dropout": 1.0}
    message = fault_of(changes | templates_for("denosent"))
    assert "method.layers is 0: input should be greater than or equal to 1" in message
    assert "method.dropout is 1.0: input should be less than 1" in message
    assert "denosent" not in message


@pytest.mark.parametrize("name", METHOD_SETTINGS)
@pytest.mark.parametrize("role", ROLES)
def test_each_template_is_there_if_and_only_if_the_method_reads_it(name, role):
    templates = templates_for(name)
    settings = override(COT, {"method.name": name, **templates})
    key, used = f"templates.{role}", role in settings.method.template_roles
    if used and role == "negative":
        assert override(settings, {key: None, "method.extended": False}).templates.negative is None
    elif used:
        message = f"{key} is null: method {name} needs this template; give one"
        assert message in fault_of({key: None}, settings)
    else:
        text = f"cot-bert/{role}"
        message = f"{key} is '{text}': method {name} does not use it; set {key}=null"
        assert message in fault_of({key: text}, settings)


def test_all_template_faults_are_reported_at_once():
    message = fault_of({"method.name": "simcse", "batch_size": 7, "workers": 2})
    for role in ROLES:
        assert f"set templates.{role}=null" in message
    assert "batch_size is 7" in message


def test_a_role_follows_the_readout():
    plain = {"method.name": "denosent", "method.readout": "mean"}
    assert override(COT, {**NONE, **plain}).templates.anchor is None
    message = fault_of({**NONE, **plain, "templates.anchor": "denosent"})
    assert "templates.anchor is 'denosent': method denosent does not use it" in message
    message = fault_of({**NONE, "method.name": "denosent"})
    assert "templates.anchor is null: method denosent needs this template" in message


@pytest.mark.parametrize(("role", "name"), [("negative", "cot-bert"), ("positive", "promptbert")])
def test_templates_with_unequal_masks_are_refused(role, name):
    templates = templates_for(name)
    message = fault_of({"method.name": name, **templates, f"templates.{role}": ONE_MASK})
    assert "templates.anchor has 2" in message
    assert f"templates.{role} has 1" in message
    assert "masks: all templates must have the same number of masks" in message
    same = {key: value and ONE_MASK for key, value in templates.items()}
    assert override(COT, {"method.name": name, **same}).templates.anchor == ONE_MASK


@pytest.mark.parametrize("name", METHOD_SETTINGS)
def test_a_change_of_method_starts_from_its_defaults(name):
    other = "promptbert" if name == "cot-bert" else "cot-bert"
    start = override(COT, {"method.name": other, **templates_for(other)})
    start = override(start, {"method.temperature": 0.9, "method.denoise": "none", "epochs": 3})
    changed = override(start, {"method.name": name, **templates_for(name)})
    assert changed.method == METHOD_SETTINGS[name]()
    assert changed.epochs == 3, "what is not the method's stays"


def test_a_change_of_method_keeps_what_is_given_with_it():
    changes = {"method.temperature": 0.2, "method.name": "promptbert", "method.denoise": "pad"}
    changed = override(COT, {**changes, **templates_for("promptbert")})
    assert changed.method == METHOD_SETTINGS["promptbert"](temperature=0.2, denoise="pad")
    assert changed.method.denoise != METHOD_SETTINGS["promptbert"]().denoise, "premise"


def test_naming_the_same_method_changes_nothing():
    start = override(COT, {"method.temperature": 0.9})
    assert override(start, {"method.name": "cot-bert"}) == start
    assert override(start, {"method.extended": False}).method == CotBertSettings(
        temperature=0.9, extended=False
    )
    assert flatten(start)["method.temperature"] == 0.9
