"""Settings: unknown keys refused, every fault reported at once, flat and nested forms the same."""

from __future__ import annotations

import json
import re
from math import inf, nan
from pathlib import Path
from typing import get_args

import pytest

from cotbert_core.choices import Pooling, Readout
from cotbert_core.encoder.heads import HEADS
from cotbert_core.encoder.pooling import READOUTS
from cotbert_core.encoder.template_denoising import DENOISERS
from cotbert_core.errors import UserError
from cotbert_core.method_settings import METHOD_SETTINGS, MethodSettings
from cotbert_core.method_settings.bases import Denoise, HeadName
from cotbert_core.methods import METHODS
from cotbert_core.settings import (
    ROLES,
    TrainSettings,
    build,
    flatten,
    override,
    with_current_names,
)
from cotbert_core.training.batches import COLUMNS

# Flat changes of valid settings and what the fault must say.
FAULTS = {
    "method.denoise": ("pads", "method.denoise is 'pads': input should be 'none', 'position' or"),
    "method.name": ("simcs", "method.name is 'simcs': give one of cot-bert, promptbert,"),
    "optimizer.clip": (0.0, "optimizer.clip is 0.0: input should be greater than 0"),
    "optimizer.learning_rate": (inf, "learning_rate is inf: input should be a finite number"),
    "method.temperature": (nan, "method.temperature is nan: input should be a finite number"),
    "optimizer": (3, "optimizer is 3: it is a group of settings; give one of them, such as o"),
    "seed": (2**63, "seed is 9223372036854775808: input should be less than"),
    "max_length": ("long", "max_length is 'long': input should be a valid integer"),
    "max_steps": (True, "max_steps is 'true': input should be a valid integer"),
    "optimizer.weight_decay": (False, "weight_decay is 'false': input should be a valid number"),
    "templates.anchor": ("cot-brt/anchor", "unknown template 'cot-brt/anchor'"),
    "templates.positive": ("no slot [MASK]", r"has the slot [X] 0 times"),
    "nonsense": (1, "setting 'nonsense' is unknown"),
    "method.temprature": (0.05, "setting 'method.temprature' is unknown"),
    "optimiser.clip": (1.0, "setting 'optimiser' is unknown"),
    "batch_size.x": (1, "setting 'batch_size.x' is unknown"),
}
PROMPTED = "temperature, dev_reading, empty_sentence"
CHOSEN = "temperature, positive, rest_length"
POSITIVE_TOO = f"{CHOSEN}, dev_reading, empty_sentence"
NO_BIAS = "; denoising needs a method that reads a template's mask"
ONE_MASK = "promptbert/anchor"
# Flat changes of each method from its defaults.
CHANGES = {
    "cot-bert": {"method.temperature": 0.1, "method.extended": False, "templates.negative": None},
    "promptbert": {"method.denoise": "pad", "method.pad_positions": "released"},
    "promptbert-supervised": {"method.head": "tanh", "method.freeze_bias": True},
    "optiprompt": {"method.head": "tanh"},
    "denosent": {"method.layers": 12, "method.readout": "cls", "templates.anchor": None},
    "simcse": {"method.readout": "mean", "method.triples": True},
    "promcse": {"method.length": 4, "method.hinge_margin": 0.1, "method.triples": True},
    "consert": {"method.shuffle": False, "method.cutoff": 0.1},
    "esimcse": {"method.queue": 0.0, "method.repetition": 0.2},
    "arccse": {"method.margin": 5.0, "method.more_masked": 0.5},
    "dclr": {"method.complement": "folder", "method.noise_steps": 2},
    "diffcse": {"method.generator": "folder", "method.mask_share": 0.2},
    "rankcse": {"method.teacher": "folder", "method.distillation": "listnet"},
    "pcl": {"method.augmentations": "invert,repeat", "method.copies": 1},
    "sncse": {"method.alpha": 0.2, "method.margin_weight": 5e-4},
    "tsdae": {"method.deletion": 0.4},
    "mlm": {"method.whole_word": True, "method.mask_share": 0.3},
}


def choice(name):
    """Flat changes that choose a method, with templates for its roles alone."""
    kind = METHOD_SETTINGS[name]()
    roles = {f"templates.{r}": f"cot-bert/{r}" if r in kind.template_roles else None for r in ROLES}
    return {"method.name": name, **roles}


def settings_for(name, changes=None):
    return override(TrainSettings(), {**choice(name), **(changes or {})})


def fault_of(changes, settings=None):
    with pytest.raises(UserError) as caught:
        override(settings or TrainSettings(), changes)
    return str(caught.value)


@pytest.mark.parametrize("key", FAULTS)
def test_a_wrong_setting_is_named_with_its_value_and_the_rule(key):
    value, expected = FAULTS[key]
    assert expected in fault_of({key: value})


FIRST = ("dropout", "paired", "neighbour", "rest")
# A method, changes of its settings, and the sentences of the fault.
FAULTS_OF_METHODS = [
    ("pcl", {"augmentations": "shuffle,invrt"}, ["there is no augmentation 'invrt'"]),
    ("pcl", {"augmentations": ""}, ["there is no augmentation ''; give one or more of"]),
    ("sncse", {"beta": 0.05}, ["method.beta is 0.05: it is the larger margin; give at"]),
    ("sncse", {"alpha": 0.5}, ["method.beta is 0.3: it is the larger margin; give at"]),
    ("arccse", {"more_masked": 0.2}, ["more_masked is 0.2: give a larger share than method."]),
    ("arccse", {"less_masked": 0.5}, ["more_masked is 0.4: give a larger share than method."]),
    (
        "denosent",
        {"layers": 0, "dropout": 1.0},
        [
            "method.layers is 0: input should be greater than or equal to 1",
            "method.dropout is 1.0: input should be less than 1",
        ],
    ),
    ("denosent", {"positive": "template"}, ["method denosent has no second template"]),
    ("denosent", {"readout": "mean"}, ["'cot-bert/anchor': method denosent does not use it"]),
    (
        "simcse",
        {"positive": "template"},
        [
            "method.positive is 'template': method simcse has no second template; give one of "
            + ", ".join(FIRST)
        ],
    ),
    ("simcse", {"positive": "itself"}, ["'dropout', 'template', 'paired'"]),
    ("simcse", {"rest_length": 0}, ["method.rest_length is 0"]),
    (
        "simcse",
        {"positive": "rest", "triples": True},
        [
            "method.triples is True: the entailment of a triple is its positive; set "
            "method.positive=dropout instead of 'rest', or method.triples=false"
        ],
    ),
    ("cot-bert", {"positive": "dropout"}, ["templates.positive=null"]),
]


@pytest.mark.parametrize(("name", "changes", "sentences"), FAULTS_OF_METHODS, ids=str)
def test_a_fault_of_a_method_is_reported(name, changes, sentences):
    flat = {f"method.{key}": value for key, value in changes.items()}
    settings = settings_for(name)
    message = fault_of(flat, settings)
    assert all(sentence in message for sentence in sentences)
    with pytest.raises(UserError) as caught:
        build(TrainSettings, {**settings.model_dump(), "method": {"name": name, **changes}})
    assert str(caught.value) == message, "defaults are checked too"


@pytest.mark.parametrize(
    ("method", "fault"),
    [
        ({}, "method.name is None: give one of cot-bert"),
        ({"temperature": 0.1}, "method.name is None: give one of cot-bert"),
        ({"name": 3}, "method.name is 3: give one of cot-bert"),
        ("simcse", "'simcse': it is a group of settings; give one of them, such as method.name"),
    ],
)
def test_a_method_without_a_name_is_refused_with_the_names(method, fault):
    with pytest.raises(UserError, match=fault):
        build(TrainSettings, {"method": method})


def test_all_faults_are_reported_at_once():
    # Of an unknown method no setting can be checked.
    alone = ("batch_size.x", "method.name", "optimizer")
    wrong = {k: v for k, (v, _) in FAULTS.items() if k not in alone}
    message = fault_of(wrong)
    assert all(FAULTS[key][1] in message for key in wrong)
    between = {"batch_size": 10, "workers": 4, "templates.negative": None}
    message = fault_of(between)
    assert "batch_size is 10: it must be a multiple of workers (4)" in message
    assert "method.extended is true without templates.negative" in message
    message = fault_of({"mini_batch_size": 8}, settings_for("tsdae"))
    assert "mini_batch_size is 8: method tsdae keeps all activations" in message
    mended = {"batch_size": 12, "method.extended": False}
    assert override(TrainSettings(), between | mended).workers == 4


@pytest.mark.parametrize("name", METHOD_SETTINGS)
def test_flatten_and_override_are_inverse(name):
    changes = {
        "encoder": "folder",
        "batch_size": 64,
        "optimizer.schedule": "constant",
        **CHANGES[name],
    }
    settings = settings_for(name, changes)
    assert settings != settings_for(name)
    flat = flatten(settings)
    assert {k: flat[k] for k in changes} == changes
    assert flat["method.name"] == name
    assert override(TrainSettings(), flat) == settings
    assert override(settings, flat) == settings
    assert not any(isinstance(value, dict) for value in flat.values())
    assert build(TrainSettings, settings.model_dump()) == settings
    assert json.loads(json.dumps(flat)) == flat


def test_choices_and_dictionaries_hold_the_same_names():
    assert list(METHODS) == list(METHOD_SETTINGS) == list(CHANGES)
    assert set(get_args(get_args(MethodSettings)[0])) == set(METHOD_SETTINGS.values())
    for name, kind in METHOD_SETTINGS.items():
        assert kind().name == name
        assert get_args(kind.model_fields["name"].annotation) == (name,)
        assert set(kind.roles) <= set(ROLES)
        assert set(kind().needs) <= set(kind().uses) <= set(COLUMNS)
    assert {*DENOISERS, "none"} == set(get_args(Denoise))
    assert set(HEADS) == set(get_args(HeadName))
    assert set(READOUTS) == set(get_args(Readout))
    fields = [kind.model_fields.get("readout") for kind in METHOD_SETTINGS.values()]
    assert {one.annotation for one in fields if one} == {Readout, Pooling}


def test_what_methods_need_follows_their_settings():
    needs = {name: kind().needs for name, kind in METHOD_SETTINGS.items() if kind().needs}
    assert needs == {"promptbert-supervised": ("augmented", "negative")}
    triples = METHOD_SETTINGS["simcse"](triples=True)
    assert triples.needs == triples.uses == ("augmented", "negative")
    denosent = METHOD_SETTINGS["denosent"]
    assert (denosent().needs, denosent().uses) == ((), ("augmented",))
    assert denosent(positive="rest").uses == (), "the paired text of the corpus is not the positive"
    assert METHOD_SETTINGS["simcse"](positive="paired").needs == ("augmented",)
    positive = {n: k().positive for n, k in METHOD_SETTINGS.items() if hasattr(k(), "positive")}
    assert positive == {
        "cot-bert": "template",
        "promptbert": "template",
        "denosent": "paired",
        "simcse": "dropout",
        "promcse": "dropout",
    }
    assert denosent().template_roles == ("anchor",)
    assert denosent(readout="cls").template_roles == ()


@pytest.mark.parametrize(
    ("name", "setting", "known"),
    [
        ("simcse", "layers", f"{CHOSEN}, readout, triples, keep_head"),
        ("tsdae", "temperature", "readout, deletion"),
        ("optiprompt", "extended", f"{PROMPTED}, head, replaced"),
        ("promptbert", "head", f"{POSITIVE_TOO}, denoise, pad_positions, freeze_bias"),
        ("cot-bert", "deletion", f"{POSITIVE_TOO}, denoise, pad_positions, freeze_bias, extended"),
        ("mlm", "denoise", f"mask_share, whole_word, packed_length{NO_BIAS}"),
        ("optiprompt", "denoise", f"{PROMPTED}, head, replaced{NO_BIAS}"),
    ],
)
def test_a_setting_of_another_method_is_refused_by_name(name, setting, known):
    message = fault_of({f"method.{setting}": 1}, settings_for(name))
    assert message == f"setting 'method.{setting}' is unknown: method {name} has {known}"


@pytest.mark.parametrize("name", METHOD_SETTINGS)
@pytest.mark.parametrize("role", ROLES)
def test_each_template_is_there_if_and_only_if_the_method_reads_it(name, role):
    settings = settings_for(name)
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


@pytest.mark.parametrize(("role", "name"), [("negative", "cot-bert"), ("positive", "promptbert")])
def test_templates_with_unequal_masks_are_refused(role, name):
    settings = settings_for(name)
    message = fault_of({f"templates.{role}": ONE_MASK}, settings)
    assert "templates.anchor has 2" in message
    assert f"templates.{role} has 1" in message
    assert "masks: all templates must have the same number of masks" in message
    same = {f"templates.{r}": ONE_MASK for r, text in settings.templates if text}
    assert override(settings, same).templates.anchor == ONE_MASK


@pytest.mark.parametrize("name", METHOD_SETTINGS)
def test_a_change_of_method_starts_from_its_defaults(name):
    other = "promptbert" if name == "cot-bert" else "cot-bert"
    changes = {"method.temperature": 0.9, "method.denoise": "none", "epochs": 3}
    start = settings_for(other, changes)
    changed = override(start, choice(name))
    assert changed.method == METHOD_SETTINGS[name]()
    assert changed.epochs == 3, "what is not the method's stays"
    assert override(start, {"method.name": other}) == start, "the same method changes nothing"


def shown(default):
    return default if isinstance(default, str) else json.dumps(default)


def rows_of_the_page():
    """Heading (None for the general table) -> setting -> default as the page shows it."""
    page = (Path(__file__).parents[2] / "docs" / "settings.md").read_text(encoding="utf-8")
    page = page[: page.index("\n## ", page.index("\n## Settings") + 1)]
    parts = re.split(r"^### `([^`]+)`$", page, flags=re.MULTILINE)
    tables = dict(zip([None, *parts[1::2]], parts[::2], strict=True))
    row = re.compile(r"^\| `([a-z_.]+)` \| `([^`]+)` \|", re.MULTILINE)
    return {name: dict(row.findall(text)) for name, text in tables.items()}


def test_the_settings_page_has_every_setting_with_its_default():
    tables = rows_of_the_page()
    general = flatten(TrainSettings())
    general = {k: v for k, v in general.items() if k[:7] != "method." or k == "method.name"}
    expected = {None: general} | {
        name: {f"method.{k}": v for k, v in flatten(kind()).items() if k != "name"}
        for name, kind in METHOD_SETTINGS.items()
    }
    assert list(tables) == list(expected)
    for name, defaults in expected.items():
        assert tables[name] == {k: shown(v) for k, v in defaults.items()}, name


@pytest.mark.parametrize(
    ("former", "name"), [("chunk_size", "mini_batch_size"), ("shuffle_rows", "shuffle_buffer_rows")]
)
def test_a_former_name_of_a_setting_works_and_warns(former, name):
    note = f"setting '{former}' is now called '{name}'"
    with pytest.warns(FutureWarning, match=note):
        changed = override(TrainSettings(), {former: 512})
    assert (getattr(changed, name), name in changed.model_fields_set) == (512, True)
    with pytest.warns(FutureWarning, match=note):
        assert build(TrainSettings, {former: 512}) == changed
    with pytest.raises(UserError, match=f"{former}' is the former name of '{name}' and both"):
        with_current_names({former: 512, name: 512})
    assert with_current_names({f"entries.a.{former}": 512}) == {f"entries.a.{name}": 512}
