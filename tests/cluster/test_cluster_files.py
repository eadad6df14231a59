"""The files for Kubernetes, cloud machines and images: known fields, one version, real commands."""

from __future__ import annotations

import json
import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import jsonschema
import pytest
import yaml

import cluster
from pipelines.cli import build_parser
from pipelines.commands import COMMANDS

HOME = Path(cluster.__file__).parent
ROOT = HOME.parent
CONSTRAINTS = (ROOT / "constraints.txt").read_text(encoding="utf-8")
RAY = re.search(r"(?m)^ray==(\S+)$", CONSTRAINTS)[1]
KUBERAY = ("kuberay/raycluster.yaml", "kuberay/rayjob.yaml")
VERSIONS = {"PersistentVolumeClaim": "v1", "RayCluster": "ray.io/v1", "RayJob": "ray.io/v1"}


PARSER = build_parser()
PAGE = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def text_of(name):
    return (HOME / name).read_text(encoding="utf-8")


PARTS = [part for name in KUBERAY for part in yaml.safe_load_all(text_of(name))]


def test_kuberay_files_are_of_the_published_versions():
    for part in PARTS:
        assert set(part) == {"apiVersion", "kind", "metadata", "spec"}
        assert part["apiVersion"] == VERSIONS[part["kind"]]


@pytest.mark.parametrize("part", [one for one in PARTS if one["kind"][:3] == "Ray"], ids=KUBERAY)
def test_what_a_kuberay_cluster_must_have(part):
    """A token, a head without work, GPUs for workers, one storage, MLflow and secrets for all."""
    spec = part["spec"].get("rayClusterSpec", part["spec"])
    assert spec["authOptions"]["mode"] == "token"
    assert spec["enableInTreeAutoscaling"] is True
    assert spec["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    assert spec["headGroupSpec"]["serviceType"] == "ClusterIP"
    group = spec["workerGroupSpecs"][0]
    assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for pod in (spec["headGroupSpec"]["template"]["spec"], group["template"]["spec"]):
        container = pod["containers"][0]
        assert {e["name"] for e in container["env"]} == {"MLFLOW_TRACKING_URI", "COTBERT_CACHE"}
        assert container["envFrom"][0]["secretRef"]["name"] == "cotbert-secrets"
        assert container["volumeMounts"][0]["mountPath"] == "/mnt/cotbert"
        assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == "cotbert-storage"
    limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits["nvidia.com/gpu"] == "1"


def test_rays_launcher_knows_every_field():
    """By the schema that Ray itself holds such a file against."""
    home = Path(find_spec("ray").origin).parent
    schema = json.loads((home / "autoscaler" / "ray-schema.json").read_text())
    config = yaml.safe_load(text_of("ray-cluster.yaml"))
    jsonschema.validate(config, schema)
    with pytest.raises(jsonschema.ValidationError, match="max_worker"):
        jsonschema.validate({**config, "max_worker": 1}, schema)
    assert config["head_node_type"] in config["available_node_types"]
    assert config["available_node_types"]["head"]["resources"]["CPU"] == 0
    assert "RAY_AUTH_MODE=token" in " ".join(config["docker"]["run_options"])


def test_one_version_of_ray_which_the_project_allows():
    for name in (*KUBERAY, "ray-cluster.yaml", "Dockerfile"):
        found = re.findall(r"(?:rayproject/ray:|cotbert:|rayVersion: \")([\d.]+)", text_of(name))
        assert set(found) == {RAY}, name
    low, high = re.search(r"ray\[[a-z,]+\]>=([\d.]+),<([\d.]+)", PROJECT).groups()
    assert low <= RAY < high


def test_the_image_below_can_be_named_by_its_digest():
    """A build argument before the first stage is all that FROM can see."""
    python = re.search(r'requires-python = ">=3\.(\d+)"', PROJECT)[1]
    lines = [line for line in text_of("Dockerfile").splitlines() if line and line[0] != "#"]
    image = f"rayproject/ray:{RAY}-py3{python}-gpu"
    assert lines[:2] == [f"ARG RAY_IMAGE={image}", "FROM ${RAY_IMAGE}"]
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    assert "--build-arg RAY_IMAGE=rayproject/ray@sha256:" in page


def test_the_image_holds_all_packages():
    copied = re.findall(r"(?m)^COPY --chown=ray (\w+) \1$", text_of("Dockerfile"))
    packages = re.search(r"(?s)packages.find\]\ninclude = \[(.*?)\]", PROJECT)[1]
    assert set(copied) == set(re.findall(r'"(\w+)\*"', packages))
    assert all((ROOT / name).is_dir() for name in copied)


def test_the_entry_point_is_a_command():
    job = yaml.safe_load(text_of("kuberay/rayjob.yaml"))["spec"]
    words = shlex.split(job["entrypoint"])
    assert words[0] == "cotbert"
    arguments = PARSER.parse_args(words[1:])
    assert arguments.workers == job["rayClusterSpec"]["workerGroupSpecs"][0]["replicas"]


def commands_of_the_page():
    for block in re.findall(r"(?s)```(?:sh)?\n(.*?)```", PAGE):
        for line in block.replace("\\\n", " ").splitlines():
            if found := re.match(r"(?:\S+=\S+ )*cotbert (.+)", line.partition(" #")[0].strip()):
                yield found[1]
    yield from re.findall(r"`cotbert ([^`]+)`", PAGE)


@pytest.mark.parametrize("command", sorted(set(commands_of_the_page())))
def test_every_command_of_the_page_is_one(command):
    words = shlex.split(command)
    assert words[0] in COMMANDS
    if len(words) > 1:
        PARSER.parse_args(words)
    if "--" in words:
        PARSER.parse_args(words[words.index("--") + 1 :])


def test_every_file_of_the_page_is_there():
    named = re.findall(r"`(cluster/[\w./-]+)`|\]\(([\w./-]+)\)", PAGE)
    assert named
    for here, link in named:
        assert (ROOT / here if here else ROOT / "docs" / link).exists(), here or link
