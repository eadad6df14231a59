"""RankCSE: its losses against their definitions, its teachers, and the method as a whole."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from made_encoders import with_encoders
from scipy.spatial.distance import jensenshannon
from torch.nn.functional import cosine_similarity

from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.errors import UserError
from cotbert_core.methods import build_method
from cotbert_core.training.batches import Batch
from pipelines.training.inputs import with_absolute_encoders
from tests.core import slow_reference
from tests.core.slow_reference import assert_same_step, exact, plain_vectors, tanh_vectors

TEMPERATURE, TAU, TAU_TEACHER, FIRST = 0.5, 0.3, 0.2, 0.25


def softmax(values, temperature):
    powers = [math.exp(v / temperature) for v in values]
    return [p / sum(powers) for p in powers]


def slow_list_mle(student, teacher, tau):
    """-log of the product, over the places, of the softmax among those not yet placed, over B."""
    total = 0.0
    for ours, theirs in zip(student, teacher, strict=True):
        left = sorted(range(len(ours)), key=lambda j: -theirs[j])
        while left:
            below = sum(math.exp(ours[j] / tau) for j in left)
            total -= math.log(math.exp(ours[left.pop(0)] / tau) / below)
    return total / len(student) / len(student[0])


def slow_list_net(student, teacher, tau, tau_teacher):
    rows = zip(student, teacher, strict=True)
    terms = (
        -sum(
            w * math.log(p)
            for w, p in zip(softmax(theirs, tau_teacher), softmax(ours, tau), strict=True)
        )
        for ours, theirs in rows
    )
    return sum(terms) / len(student)


def slow_consistency(first, second, tau):
    pairs = zip(first, second, strict=True)
    return sum(jensenshannon(softmax(a, tau), softmax(b, tau)) ** 2 for a, b in pairs) / len(first)


@pytest.fixture
def teachers(other_encoder, encoder_folder):
    return [other_encoder(encoder_folder, seed) for seed in (1, 2)]


@pytest.fixture
def make(make_bare, teachers):
    first, second = teachers
    given = {"teacher": first, "second_teacher": second, "teacher_weight": FIRST}
    temperatures = {"student_temperature": TAU, "teacher_temperature": TAU_TEACHER}
    return partial(make_bare, "rankcse", temperature=TEMPERATURE, **given, **temperatures)


def matrix(left, right):
    return [[cosine_similarity(u, v, dim=0).item() for v in right] for u in left]


def slow_ranking(method, ids, ends):
    """The teachers' weighted similarities, from vectors of a sentence at a time."""
    weights = [FIRST, 1 - FIRST] if len(method.teachers) == 2 else [1.0]
    total = np.zeros((len(ids), len(ids)))
    for weight, teacher in zip(weights, method.teachers, strict=True):
        with torch.no_grad():
            vectors = plain_vectors(exact(teacher.backbone.model), ends, ids, "mean")
        total += weight * np.array(matrix(vectors, vectors))
    return total.tolist()


@with_encoders(
    "distillation second",
    ("bert", "listmle", True),
    ("bert", "listnet", True),
    ("roberta", "listnet", False),
)
def test_the_parts_are_those_of_the_slow_reference(make, ids, ends, distillation, second):
    """On two views that differ, as dropout makes them."""
    weights = {"consistency_weight": 3.0, "distillation_weight": 0.5}
    one = {} if second else {"second_teacher": None}
    method = make(distillation=distillation, **weights, **one)
    torch.manual_seed(3)
    views = [torch.randn(len(ids), 32) for _ in range(2)]
    method.vectors = lambda *_: views
    output = method(Batch(ids))
    wanted = slow_ranking(method, ids, ends)
    student, turned = matrix(views[0], views[1]), matrix(views[1], views[0])
    expected = {
        "contrastive": slow_reference.info_nce(TEMPERATURE, *views).item(),
        "consistency": slow_consistency(student, turned, TEMPERATURE),
        "distillation": slow_list_mle(student, wanted, TAU)
        if distillation == "listmle"
        else slow_list_net(student, wanted, TAU, TAU_TEACHER),
    }
    found = {name: output.parts[name].item() for name in expected}
    assert found == pytest.approx(expected, abs=1e-5)
    contrast, consistency, distilled = expected.values()
    whole = contrast + 3 * consistency + 0.5 * distilled
    assert output.loss.item() == pytest.approx(whole, abs=1e-5)
    assert expected["consistency"] > 1e-2, "premise"


def test_gradients_equal_a_sentence_at_a_time(make, exact_model, ids, ends):
    """Without dropout the views are equal, so InfoNCE and the distillation remain."""
    method = make(distillation="listnet")
    head = exact(method.head)
    once = tanh_vectors(exact_model, head, ends, ids, "cls")
    wanted = [softmax(row, TAU_TEACHER) for row in slow_ranking(method, ids, ends)]
    loss = slow_reference.info_nce(TEMPERATURE, once, once)
    for own, shares in zip(once, wanted, strict=True):
        scores = torch.stack([cosine_similarity(own, other, dim=0) / TAU for other in once])
        loss = loss - (torch.tensor(shares) * scores.log_softmax(0)).sum() / len(once)
    twins = (method.encoder, exact_model), (method.head, head)
    assert_same_step(method(Batch(ids)), loss, *twins)


def test_dropout_makes_the_rankings_differ(make, ids):
    method = make()
    assert method(Batch(ids)).parts["consistency"].item() < 1e-6
    for module in method.modules():
        if hasattr(module, "p"):
            module.p = 0.3
    assert method.train()(Batch(ids)).parts["consistency"].item() > 1e-4


def test_a_missing_teacher_is_refused(make):
    with pytest.raises(UserError, match=r"method\.teacher is null .* give --set method\.teacher="):
        make(teacher=None)


def test_without_weight_no_teacher_is_opened(make, ids):
    """The loss is that with teachers, and a weight so small that float32 loses it."""
    method, beside = make(teacher=None, distillation_weight=0), make(distillation_weight=1e-12)
    output = method(Batch(ids))
    assert method.teachers == ()
    assert len(beside.teachers) == 2
    assert output.loss.item() == beside(Batch(ids)).loss.item()
    assert "distillation" not in output.parts
    assert "method.teacher" in method.settings.idle


def test_teachers_keep_their_place_in_another_working_folder(make, monkeypatch, teachers):
    """A worker of Ray has a working folder of its own."""
    monkeypatch.chdir(Path(teachers[0]).parent)
    relative = Path(teachers[0]).name
    settings = make(teacher=relative, second_teacher=None).settings
    found = with_absolute_encoders(settings)
    assert found.encoders == {"encoder": settings.encoder, "method.teacher": teachers[0]}
    monkeypatch.chdir("/")
    assert build_method(load_backbone(found.encoder), found).teachers
    with pytest.raises(UserError, match=relative):
        build_method(load_backbone(settings.encoder), settings)


def test_a_model_folder_names_teachers_without_this_machine_s_paths(make, teachers):
    """Its settings are published, as cotbert.json and in the card."""
    settings = make().pooling.settings
    names = [f"a folder named {Path(teacher).name}" for teacher in teachers]
    assert [settings["method.teacher"], settings["method.second_teacher"]] == names
