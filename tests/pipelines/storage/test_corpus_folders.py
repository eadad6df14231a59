"""A folder whose manifest is not a corpus's is named as what it is, with status 2."""

from __future__ import annotations

import json

import pytest

from pipelines.cli import main

# Manifest of a folder -> what the sentence says of it.
OTHERS = {
    "vectors": ({"rows": 2, "dimension": 3, "model": "m"}, "is a folder of vectors"),
    "index": ({"rows": 2, "index": {"format": "faiss"}}, "is an index of vectors"),
    "strange": ({"a": 1}, "is a folder with a manifest.json of another kind"),
    "a list": ([1], "is a folder with a manifest.json of another kind"),
}
TRAIN = "train quickstart --encoder MODEL"
COMMANDS = [
    *(f"{job} --encoder MODEL" for job in ("tune seeds", "compare quickstart")),
    "augment --method llm --model m",
]


@pytest.mark.parametrize(
    ("command", "kind"),
    [*((TRAIN, kind) for kind in OTHERS), *((command, "vectors") for command in COMMANDS)],
)
def test_a_job_names_what_the_folder_holds(tmp_path, bert_folder, capsys, command, kind):
    manifest, expected = OTHERS[kind]
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    words = command.replace("MODEL", bert_folder).split()
    assert main([*words, "--corpus", str(tmp_path), "--output", str(tmp_path / "out")]) == 2
    message = capsys.readouterr().err
    assert f"corpus '{tmp_path}' {expected}" in message
    assert "`cotbert prepare`" in message
    assert not (tmp_path / "out").exists()
