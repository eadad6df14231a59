"""A list with hashes takes the very files that it was made from, and no others of their version."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile

import pytest

from cluster.hashed_lock import hashed_lock, main
from cotbert_core.errors import UserError


def make_wheel(folder, name, text):
    """A package of one module, as pip takes it."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": text,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        for path, content in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(path, content)


def install(wheels, *words):
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-index", "--find-links", str(wheels), "--no-cache-dir", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.real
def test_another_file_of_the_same_version_is_refused(tmp_path, capsys):
    for name in ("doorone", "doortwo"):
        make_wheel(tmp_path / "wheels", name, "")
    report = tmp_path / "report.json"
    made = install(
        tmp_path / "wheels",
        "--dry-run",
        "--ignore-installed",
        "--report",
        report,
        "doorone",
        "doortwo",
    )
    assert made.returncode == 0, made.stderr
    assert main([str(report)]) == 0
    lock = tmp_path / "hashed.txt"
    lock.write_text(capsys.readouterr().out)
    checked = ("--require-hashes", "--requirement", lock, "--target")
    assert install(tmp_path / "wheels", *checked, tmp_path / "one").returncode == 0
    assert (tmp_path / "one" / "doortwo.py").is_file()
    make_wheel(tmp_path / "wheels", "doortwo", "print('something else')")
    refused = install(tmp_path / "wheels", *checked, tmp_path / "two")
    assert refused.returncode != 0
    assert "DO NOT MATCH THE HASHES" in refused.stderr
    assert not (tmp_path / "two" / "doortwo.py").exists()


def item(name, **source):
    return {"metadata": {"name": name, "version": "1"}, "download_info": source}


def test_the_project_is_left_out_and_a_file_without_a_hash_refused():
    whole = item("Zeta", url="z", archive_info={"hashes": {"sha256": "ab"}})
    folder = item("cotbert", url="file:///here", dir_info={"editable": True})
    other = item("alpha", url="a", archive_info={"hashes": {"sha256": "cd"}})
    lines = ["alpha==1 --hash=sha256:cd", "Zeta==1 --hash=sha256:ab"]
    assert hashed_lock({"install": [whole, folder, other]}).splitlines() == lines
    with pytest.raises(UserError, match="beta comes from 'git' without a SHA-256 hash"):
        hashed_lock({"install": [item("beta", url="git", vcs_info={})]})


def test_what_is_no_report_is_status_2(tmp_path, capsys):
    (tmp_path / "list.json").write_text(json.dumps({"pip_version": "26"}))
    for words in ([], [str(tmp_path / "list.json")], [str(tmp_path / "none")]):
        assert main(words) == 2
        assert capsys.readouterr().err.count("\n") == 1
