"""A setting that is said to have no effect has none, and has one beside other settings."""

from __future__ import annotations

import pytest

from cotbert_core.settings import TrainSettings, override

OBJECTIVE = "method.objective"
BOTH = {OBJECTIVE: "both"}
# The method, the settings beside which another has no effect, those beside which it has, and it.
CASES = [
    ("denosent", {OBJECTIVE: "contrastive"}, BOTH, ("method.layers", 2)),
    ("denosent", {OBJECTIVE: "contrastive"}, BOTH, ("method.heads", 4)),
    ("denosent", {OBJECTIVE: "contrastive"}, BOTH, ("method.feed_forward", 40)),
    ("denosent", {OBJECTIVE: "contrastive"}, BOTH, ("method.generative_weight", 3.0)),
    ("denosent", {OBJECTIVE: "contrastive"}, BOTH, ("method.target", "original")),
    ("denosent", {OBJECTIVE: "contrastive"}, BOTH, ("method.dropout", 0.5)),
    ("denosent", {OBJECTIVE: "contrastive"}, BOTH, ("method.decoder_dropout", 0.5)),
    ("denosent", {OBJECTIVE: "generative"}, BOTH, ("method.temperature", 0.3)),
    ("denosent", {OBJECTIVE: "generative"}, BOTH, ("method.contrastive_weight", 2.0)),
    ("denosent", {OBJECTIVE: "generative"}, BOTH, ("method.projected", False)),
    ("denosent", {"method.positive": "dropout"}, {}, ("method.target", "original")),
    ("promcse", {}, {"method.triples": True}, ("method.hinge_weight", 3.0)),
    ("promcse", {}, {"method.triples": True}, ("method.hinge_margin", 0.9)),
    (
        "promcse",
        {"method.triples": True, "method.hinge_weight": 0},
        {"method.triples": True},
        ("method.hinge_margin", 0.9),
    ),
    ("arccse", {"method.triplet_weight": 0}, {}, ("method.triplet_margin", 0.5)),
    ("dclr", {"method.noise": 0}, {}, ("method.noise_steps", 0)),
    ("dclr", {"method.noise_steps": 0}, {}, ("method.noise_step_size", 2.0)),
    ("dclr", {"method.complement": None}, {}, ("method.threshold", -1)),
    ("diffcse", {"method.detection_weight": 0}, {}, ("method.mask_share", 0.8)),
    ("rankcse", {"method.distillation_weight": 0}, {}, ("method.student_temperature", 0.5)),
    ("rankcse", {"method.distillation_weight": 0}, {}, ("method.distillation", "listnet")),
    (
        "rankcse",
        {"method.distillation": "listmle"},
        {"method.distillation": "listnet"},
        ("method.teacher_temperature", 0.5),
    ),
    ("sncse", {"method.margin_weight": 0}, {}, ("method.alpha", 0.05)),
    ("sncse", {"method.margin_weight": 0}, {}, ("method.beta", 0.1)),
    ("pcl", {"method.augmentations": "shuffle"}, {}, ("method.share", 0.9)),
]


@pytest.mark.parametrize(("name", "without", "beside", "setting"), CASES)
def test_a_setting_has_an_effect_where_none_is_denied(start, name, without, beside, setting):
    path, value = setting

    def losses(changes):
        """The loss, and the one with the setting; whether it is said to have no effect."""
        found = []
        for some in (changes, changes | {path: value}):
            method, settings, batch = start(name, **some)
            found.append(float(method(batch).loss.detach()))
        return found, path in settings.idle

    (loss, other), is_idle = losses(without)
    assert loss == other
    assert is_idle
    (loss, other), is_idle = losses(beside)
    assert loss != other
    assert not is_idle


@pytest.mark.parametrize(
    ("changes", "idle"),
    [
        ({}, {"method.rest_length", "node_seconds"}),
        ({"method.positive": "rest"}, {"node_seconds"}),
        ({"workers": 2, "min_workers": 1, "max_steps": 3}, {"method.rest_length", "epochs"}),
        (
            {"method.denoise": "none"},
            {"method.rest_length", "method.pad_positions", "method.freeze_bias", "node_seconds"},
        ),
    ],
)
def test_what_has_no_effect_in_a_run_is_known(changes, idle):
    settings = override(TrainSettings(), changes)
    assert set(settings.idle) == idle
