"""Output folders: nothing is overwritten, nothing half-written looks finished."""

from __future__ import annotations

import pytest

from cotbert_core.errors import UserError
from cotbert_core.files import (
    UNFINISHED,
    absolute_path,
    atomic_folder,
    read_json,
    write_json,
    write_text,
)
from cotbert_core.settings import TrainSettings, flatten
from pipelines.cli import main
from pipelines.recipes import RECIPES
from pipelines.storage.output_folder import (
    LATER_SETTINGS,
    check_output,
    earlier_run,
    open_output,
    require_empty,
)
from pipelines.storage.resumable_output import RECORD_FILE, resumable_output
from pipelines.training.inputs import encoder_digest


@pytest.mark.parametrize("name", ["new", "deep/er/new"])
def test_a_new_or_empty_folder_is_free_and_any_other_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    assert require_empty(name) == tmp_path / name
    (tmp_path / name).mkdir(parents=True)
    assert require_empty(name) == tmp_path / name
    (tmp_path / name / "mine.txt").write_text("mine")
    for path in (name, f"{name}/mine.txt"):
        with pytest.raises(UserError, match="already holds something: give a new folder"):
            require_empty(path)
    with pytest.raises(UserError, match="'/' is the root folder: give a new folder"):
        require_empty("/")
    with pytest.raises(UserError, match=r"d\\udce9/c' has a name that is not UTF-8: give another"):
        require_empty("d\udce9/c")


def test_messages_name_a_folder_above_without_dots(tmp_path, monkeypatch):
    (tmp_path / "here" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "here" / "deep")
    monkeypatch.chdir(tmp_path / "here")
    assert require_empty("../out") == tmp_path / "out"
    with pytest.raises(UserError, match=f"'{tmp_path}' already holds"):
        require_empty("..")
    # Above a linked folder is the folder that holds it, not the one that holds the link.
    assert absolute_path("../link/../a") == tmp_path / "here" / ".." / "link" / ".." / "a"
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert absolute_path("../loop") == tmp_path / "loop", "it is refused as no folder later"
    with pytest.raises(UserError, match="/loop' is a link that leads nowhere: give a new folder"):
        require_empty("../loop")


def test_a_job_begins_in_a_new_folder_and_continues_in_its_own(tmp_path, capsys):
    record = {"settings": {"method.temperature": 0.05, "seed": [0, 1]}, "corpus_digest": "a"}
    out = tmp_path / "out"
    out.mkdir()
    (out / "settings.json.partial").write_text("{")  # of a kill or a full disk
    assert check_output(out, "search", record) == open_output(out, "search", record) == out
    assert earlier_run(out) is None
    write_text(out / "mlflow_run_id", "abc")
    assert "continuing" not in capsys.readouterr().err
    assert open_output(out, "search", record) == out
    assert earlier_run(out) == "abc"
    assert "continuing the search in" in capsys.readouterr().err
    other = {"settings": {"method.temperature": 0.1, "seed": [0, 1]}, "corpus_digest": "b"}
    changed = r"other settings \(method\.temperature, the corpus\): give the same settings or a"
    with pytest.raises(UserError, match=f"the search in .* was started with {changed} new"):
        open_output(out, "search", other)
    many = {"settings": {f"a{n}": n for n in range(9)}}
    with pytest.raises(UserError, match=r"\(\S+, \S+, the corpus, \S+, \S+ and 7 more\): give"):
        open_output(out, "search", many)
    write_json(out / "result.json", {})
    with pytest.raises(UserError, match=r"the search in .* is finished: give a new folder"):
        open_output(out, "search", record)
    assert open_output(out, "search", record, finished=False) == out


def earlier_settings():
    """Yield the settings of a run, those that an earlier version wrote of it, and changes to it."""
    together = {}
    for recipe in ("promptbert-base", "optiprompt-base", "denosent-base"):
        together |= flatten(RECIPES[recipe]())
    together["method.inference"] = "whole"
    assert set(LATER_SETTINGS) <= set(together)
    yield (
        "later settings",
        together,
        without(together, LATER_SETTINGS),
        {
            "method.inference": "released",
            "method.dev_reading": "released",
        },
    )
    for recipe in ("quickstart", "promptbert-base", "denosent-base", "simcse-base"):
        settings = flatten(RECIPES[recipe]())
        old = without(settings, ("method.positive", "method.rest_length"))
        yield f"a positive of {recipe}", settings, old, {"method.positive": "rest"}
    settings = flatten(RECIPES["cot-bert-base"]()) | {"mini_batch_size": 64}
    few = settings | {"cpus_per_worker": 2}
    yield "another number of cores", settings, few, {"seed": 3}
    former = {"mini_batch_size": "chunk_size", "shuffle_buffer_rows": "shuffle_rows"}
    old = {former.get(name, name): value for name, value in settings.items()}
    yield "former names", settings, old, {"mini_batch_size": 32}


def without(settings, names):
    return {name: value for name, value in settings.items() if name not in names}


@pytest.mark.parametrize(
    ("settings", "old", "changes"),
    [pytest.param(*case, id=name) for name, *case in earlier_settings()],
)
def test_a_job_of_an_earlier_version_continues_while_it_would_do_the_same(
    tmp_path, settings, old, changes
):
    out = open_output(tmp_path / "out", "run", {"settings": old})
    assert open_output(out, "run", {"settings": settings}) == out
    for name, value in changes.items():
        with pytest.raises(UserError, match=rf"was started with other settings \({name}\)"):
            open_output(out, "run", {"settings": settings | {name: value}})
    # The same inside a comparison or a sweep, whose settings lie deeper.
    open_output(tmp_path / "two", "sweep", {"trials": {"0000": old}})
    open_output(tmp_path / "two", "sweep", {"trials": {"0000": settings}})


def test_a_folder_has_its_name_only_when_whole(tmp_path):
    """Whether an empty folder or what a killed job left is there already."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "killed.partial" / UNFINISHED).mkdir(parents=True)
    (tmp_path / "killed.partial" / UNFINISHED / "half").write_text("1")
    # Of a job that was killed while it saved an encoder into such a folder.
    (tmp_path / "nested.partial" / f"{UNFINISHED}.partial" / UNFINISHED).mkdir(parents=True)
    (tmp_path / "nested.partial" / UNFINISHED).mkdir()
    (tmp_path / "deep" / "new.partial").mkdir(parents=True)
    for name in ("deep/new", "empty", "killed", "nested"):
        with atomic_folder(tmp_path / name) as folder:
            assert list(folder.iterdir()) == []
            (folder / "a").write_text("1")
            assert not (tmp_path / name / "a").exists()
        assert [p.name for p in (tmp_path / name).iterdir()] == ["a"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["deep", "empty", "killed", "nested"]


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_leads_to_the_output(tmp_path, exists):
    target = tmp_path / "disk" / "out"
    if exists:
        target.mkdir(parents=True)
    (tmp_path / "link").symlink_to("disk/out")
    with resumable_output(require_empty(tmp_path / "link"), {"job": "test"}) as work:
        (work.output / "a").write_text("1")
    (target / "a").unlink()
    with atomic_folder(tmp_path / "link") as folder:
        (folder / "b").write_text("1")
    (target / "b").unlink()
    target.rmdir()
    assert open_output(tmp_path / "link", "run", {"a": 1}) == target
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failed_block_leaves_nothing(tmp_path, error):
    def fail():
        with atomic_folder(tmp_path / "out") as folder:
            (folder / "a").write_text("1")
            raise error

    with pytest.raises(error):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_taken_folder_is_not_touched(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UserError), atomic_folder(tmp_path):
        pytest.fail("the block ran")
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]
    assert not tmp_path.with_name(f"{tmp_path.name}.partial").exists()


def test_a_partial_folder_of_another_kind_is_not_touched(tmp_path):
    """For instance a user's own, or the work that an interrupted `cotbert embed` continues."""
    mine = tmp_path / "out.partial" / RECORD_FILE
    mine.parent.mkdir()
    mine.write_text("{}")
    with (
        pytest.raises(UserError, match=r"out\.partial' holds the work of another .*: move it, or"),
        atomic_folder(tmp_path / "out"),
    ):
        pytest.fail("the block ran")
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [mine]


def test_files_are_replaced_whole(tmp_path):
    path = tmp_path / "a.json"
    for value in ("é", {"é": [1, 2.5, None, True], "b": {"c": "x"}}):
        write_json(path, value)
        assert read_json(path) == value
    write_text(path, "é")
    assert path.read_text(encoding="utf-8") == "é"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", [None, b"{", b"\xff\xfe"])
def test_unreadable_json_is_a_users_mistake(tmp_path, content):
    if content is not None:
        (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(UserError, match=r"a\.json' cannot be read as JSON"):
        read_json(tmp_path / "a.json")


def test_a_job_is_continued_with_the_same_files_of_its_encoder(tmp_path):
    encoder = tmp_path / "encoder"
    write_json(encoder / "tokenizer.json", {})
    settings = TrainSettings(encoder=str(encoder))
    earlier = {"settings": flatten(settings)}
    record = {**earlier, "encoder_digest": encoder_digest([settings])}
    open_output(tmp_path / "out", "run", record)
    open_output(tmp_path / "earlier", "run", earlier)
    (encoder / "model.safetensors").write_bytes(b"trained again")
    changed = {**earlier, "encoder_digest": encoder_digest([settings])}
    check_output(tmp_path / "earlier", "run", changed)
    with pytest.raises(UserError, match=r"with other settings \(the encoder's files\): give"):
        check_output(tmp_path / "out", "run", changed)
    assert encoder_digest([TrainSettings(encoder="bert-base-uncased")]) is None


@pytest.mark.parametrize("command", ["train quickstart", "pretrain mlm-base"])
def test_settings_that_a_kill_left_unfinished_are_in_no_commands_way(
    tmp_path, bert_folder, capsys, command
):
    out = tmp_path / "out"
    out.mkdir()
    (out / "settings.json.partial").write_text("{")
    words = ["--corpus", str(tmp_path / "a.txt"), "--encoder", bert_folder, "--output", str(out)]
    assert main([*command.split(), *words]) == 2
    assert "a.txt' does not exist" in capsys.readouterr().err
