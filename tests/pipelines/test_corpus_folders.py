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


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("command", ["train quickstart", "tune seeds", "compare quickstart"])
def test_training_names_what_the_folder_holds(tmp_path, bert_folder, capsys, command, kind):
    manifest, expected = OTHERS[kind]
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    words = [*command.split(), "--corpus", str(folder), "--encoder", bert_folder]
    assert main([*words, "--output", str(tmp_path / "out")]) == 2
    message = capsys.readouterr().err
    assert f"corpus '{folder}' {expected}" in message
    assert "`cotbert prepare`" in message
    assert not (tmp_path / "out").exists()


def test_augment_does_too(tmp_path, capsys):
    (tmp_path / "manifest.json").write_text(json.dumps(OTHERS["vectors"][0]))
    words = ["augment", "--corpus", str(tmp_path), "--method", "llm", "--model", "m"]
    assert main([*words, "--output", str(tmp_path / "out")]) == 2
    assert "is a folder of vectors" in capsys.readouterr().err
