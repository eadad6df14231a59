"""Two commands do not write one output: the second is refused and leaves the first's work alone."""

from __future__ import annotations

import os

import numpy as np
import pytest
from embeddings_folders import write_folder

from pipelines.cli import main
from pipelines.storage.resumable_output import locked_output

COMMANDS = {
    "index": ["index", "vectors"],
    "merge": ["merge", "MODEL", "MODEL"],
    "export": ["export", "MODEL", "--format", "folder"],
    "geometry": ["geometry", "MODEL"],
    "token-map": ["token-map", "MODEL", "--corpus", "a.txt"],
    "search-template": ["search-template", "MODEL"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_second_command_is_refused(tmp_path, unrecorded, bert_folder, capsys, command):
    write_folder(tmp_path / "vectors", range(6), np.eye(6, 4, dtype=np.float32))
    (tmp_path / "a.txt").write_text("one dog\ntwo dogs\n")
    work = tmp_path / "out.partial" / "unfinished-folder"
    work.mkdir(parents=True)
    words = [bert_folder if word == "MODEL" else word for word in COMMANDS[command]]
    with locked_output(tmp_path / "out"):
        assert main([*words, "--output", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert f"output '{tmp_path}/out' is being written by process {os.getpid()} on " in error
    assert work.is_dir()
