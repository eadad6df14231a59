"""Links in an input folder that lead out of it are not followed, and said."""

from __future__ import annotations

import pytest

from cotbert_core.errors import UserError
from pipelines.preparing.exclusion import key, read_exclusion
from pipelines.reading.sources import plan
from pipelines.runtime.progress import say_once


@pytest.fixture
def folder(tmp_path):
    """A file, a link to it, and links to a file outside."""
    say_once.cache_clear()
    outside, folder = tmp_path / "outside", tmp_path / "in"
    outside.mkdir()
    folder.mkdir()
    (outside / "secret.txt").write_text("a secret of somebody else\n")
    (folder / "own.txt").write_text("an own sentence\n")
    (folder / "again.txt").symlink_to("own.txt")
    (folder / "out.txt").symlink_to(outside / "secret.txt")
    (folder / "up.txt").symlink_to("../outside/secret.txt")
    return folder


@pytest.mark.parametrize("form", ["{}", "{}/*.txt", "{}/**/*", "file://{}", "file://{}/*.txt"])
def test_links_that_lead_out_are_counted_and_said(folder, form, capsys):
    made = plan([form.format(folder)])
    assert [name.rpartition("/")[2] for name in made.files] == ["again.txt", "own.txt"]
    assert made.ignored == 2
    assert "2 links in" in (said := capsys.readouterr().err)
    assert "lead outside it and were not followed" in said
    assert "out.txt" in said


def test_a_link_that_is_named_is_followed_and_links_alone_are_refused(folder, tmp_path):
    assert plan([str(folder / "out.txt")]).files == [str(folder / "out.txt")]
    (tmp_path / "linked").symlink_to(folder)
    assert len(plan([str(tmp_path / "linked")]).files) == 2
    (folder / "own.txt").unlink()
    (folder / "again.txt").unlink()
    with pytest.raises(UserError, match="holds no file of a known kind"):
        plan([str(folder)])


def test_links_in_a_folder_to_exclude_are_not_followed(folder, capsys):
    assert read_exclusion([str(folder)]) == {key("an own sentence")}
    assert "2 links in --exclude" in capsys.readouterr().err
