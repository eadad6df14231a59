"""A job uses the cores that its container may use, as Ray counts them."""

from __future__ import annotations

import os

import pytest

from pipelines.runtime import cores


@pytest.fixture
def quota(tmp_path, monkeypatch):
    """Set the quota of a container on a machine with four cores, by the files of a cgroup."""
    monkeypatch.setattr(cores, "CGROUPS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})

    def write(files):
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(content)

    return write


def first_version(share):
    return {"cpu/cpu.cfs_quota_us": f"{share}\n", "cpu/cpu.cfs_period_us": "100000\n"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 4),
        ({"cpu.max": "max 100000\n"}, 4),
        ({"cpu.max": "200000 100000\n"}, 2),
        ({"cpu.max": "150000 100000\n"}, 1),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "800000 100000\n"}, 4),
        (first_version(-1), 4),
        (first_version(300000), 3),
        (first_version(50000), 1),
    ],
)
def test_a_quota_limits_the_cores(quota, files, expected):
    quota(files)
    assert cores.available_cores() == expected


def test_without_affinity_all_cores_count(quota, monkeypatch):
    """As on macOS."""
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert cores.available_cores() == 8
