"""Jobs with workers on a disk that fills up: one sentence, exit status 1, and a way on."""

from __future__ import annotations

import forked
import pytest
from small_disk import mounted
from test_disk_full import SENTENCE
from tiny_corpus import write_corpus

pytestmark = pytest.mark.ray_local


@pytest.fixture(scope="module")
def lines(home):
    path = home / "lines.txt"
    path.write_text("".join(f"sentence {n} is long enough\n" for n in range(20_000)))
    return path


def failure(command: list[str]) -> str:
    """The last line of a command in a process of its own, which must fail."""
    done = forked.run(*command)
    assert done.returncode == 1, done.stderr
    line = done.stderr.strip().splitlines()[-1]
    assert SENTENCE.search(line), line
    assert "ray::" not in line
    return line


def test_prepare(tmp_path, lines, bert_folder):
    with mounted(tmp_path / "small", "350k") as place:
        command = ["prepare", "--input", str(lines), "--encoder", bert_folder]
        line = failure([*command, "--output", str(place / "out")])
        assert f"tmpfs at {place}" in line


def test_embed(tmp_path, lines, bert_folder):
    with mounted(tmp_path / "small", "1500k") as place:  # room for one part of 8,192 rows
        command = ["embed", bert_folder, "--precision", "fp32"]
        line = failure([*command, "--input", str(lines), "--output", str(place / "out")])
        assert f"tmpfs at {place}" in line
        assert "give the same command again to continue" in line


def test_train(tmp_path, home, bert_folder):
    corpus = write_corpus(tmp_path / "corpus", bert_folder, [f"a man {n}" for n in range(64)])
    sets = ("batch_size=8", "max_steps=6", "eval_every=2", "precision=fp32", "max_length=12")
    with mounted(tmp_path / "small", "400k") as place:
        command = ["train", "quickstart", "--encoder", bert_folder, "--corpus", str(corpus)]
        command += [part for item in sets for part in ("--set", item)]
        line = failure([*command, "--output", str(place / "out")])
        assert f"tmpfs at {place}" in line
        assert "give the same command again to continue" in line
