"""Ray's token is made, and kept, for its owner alone; a file that is not is mended or refused."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from cotbert_core.errors import UserError
from pipelines.runtime.auth_token import (
    check_mode,
    default_path,
    ensure_own_token,
    ensure_token,
    find_token,
)


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home of the test's own, without a token, under a umask that takes nothing away."""
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    before = os.umask(0)
    yield tmp_path / "home"
    os.umask(before)


@pytest.fixture
def token_file(home):
    """A token that everybody can read, as Ray writes it."""
    path = home / ".ray" / "auth_token"
    path.parent.mkdir(parents=True, mode=0o755)
    path.write_text("old\n")
    path.chmod(0o644)
    return path


def test_a_token_is_private_from_its_first_moment(home, monkeypatch):
    created, open_file = [], os.open

    def spy(path, flags, *more, **options):
        descriptor = open_file(path, flags, *more, **options)
        if flags & os.O_CREAT:
            created.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        return descriptor

    monkeypatch.setattr(os, "open", spy)
    path = ensure_token()
    assert path == default_path() == home / ".ray" / "auth_token"
    assert created == [0o600]
    assert (mode_of(path), mode_of(path.parent)) == (0o600, 0o700)
    assert find_token() == path.read_text()
    assert len(find_token()) == 64
    assert ensure_token() is None
    assert os.listdir(path.parent) == ["auth_token"]


def test_commands_that_start_together_share_a_token(home):
    with ThreadPoolExecutor(16) as pool:
        tokens = set(pool.map(lambda _: (ensure_token(), find_token())[1], range(64)))
    assert len(tokens) == 1
    assert os.listdir(home / ".ray") == ["auth_token"]


def test_an_empty_file_is_no_token(token_file):
    token_file.write_text("\n")
    assert ensure_token() == token_file
    assert len(find_token()) == 64
    assert mode_of(token_file) == 0o600


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o666, 0o660])
def test_a_wider_mode_is_mended_with_a_warning(token_file, capsys, mode):
    token_file.chmod(mode)
    assert ensure_token() is None
    assert (mode_of(token_file), token_file.read_text()) == (0o600, "old\n")
    stderr = capsys.readouterr().err
    assert f"warning: the token file {token_file} had mode {mode:04o} and now has 0600" in stderr
    assert find_token() == "old"
    assert capsys.readouterr().err == ""


def test_a_mode_that_cannot_be_mended_is_refused(token_file, monkeypatch):
    monkeypatch.setattr(os, "chmod", lambda *_, **__: None)
    with pytest.raises(UserError, match=r"mode 0644, with which others .* put the token into RAY_"):
        ensure_token()


def test_a_folder_is_no_token(token_file):
    token_file.unlink()
    token_file.mkdir()
    with pytest.raises(UserError, match=r"cannot be read \("):
        ensure_token()


def test_a_named_file_may_be_a_link_and_must_hold_a_token(home, tmp_path, monkeypatch):
    """As a secret that Kubernetes mounts."""
    named, data = tmp_path / "token", tmp_path / "data"
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(named))
    with pytest.raises(UserError, match="No such file or directory"):
        ensure_token()
    data.touch()
    named.symlink_to(data)
    with pytest.raises(UserError, match="it is empty"):
        ensure_token()
    data.write_text("secret\n")
    assert find_token() == "secret"
    assert mode_of(data) == 0o600
    assert not home.exists()


def test_a_named_file_of_root_may_be_readable_by_others(tmp_path, home, monkeypatch, capsys):
    (tmp_path / "token").write_text("secret\n")
    (tmp_path / "token").chmod(0o644)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(os, "chmod", lambda *_, **__: None)
    stat_of = os.stat

    def of_root(*path, **options):
        state = stat_of(*path, **options)
        return os.stat_result((*state[:4], 0, *state[5:]))

    monkeypatch.setattr(os, "stat", of_root)
    assert find_token() == "secret"
    assert "of root has mode 0644: others can read it" in capsys.readouterr().err


def test_a_home_that_cannot_be_written(home, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    for place in ("/proc/none", str(tmp_path / "file")):
        monkeypatch.setenv("HOME", place)
        with pytest.raises(UserError, match=r"cannot be written .* put a token into RAY_AUTH_TOK"):
            ensure_token()
    monkeypatch.setenv("RAY_AUTH_TOKEN", "given")
    assert ensure_token() is None


def test_a_private_ray_needs_no_file(home, tmp_path, monkeypatch):
    """As in a container whose user has no home folder."""
    monkeypatch.setenv("HOME", "/proc/none")
    ensure_own_token()
    token = os.environ.pop("RAY_AUTH_TOKEN")
    assert len(token) == 64
    ensure_own_token()
    assert os.environ.pop("RAY_AUTH_TOKEN") != token
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "none"))
    with pytest.raises(UserError, match="No such file or directory"):
        ensure_own_token()
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH")
    monkeypatch.setenv("HOME", str(home))
    (home / ".ray" / "auth_token").mkdir(parents=True)
    with pytest.raises(UserError, match="correct or remove it"):
        ensure_own_token()
    (home / ".ray" / "auth_token").rmdir()
    ensure_own_token()
    assert find_token() == (home / ".ray" / "auth_token").read_text()
    assert "RAY_AUTH_TOKEN" not in os.environ


@pytest.mark.parametrize(("mode", "warns"), [("disabled", 1), ("token", 0), (None, 0)])
def test_no_token_at_all_is_warned_of(home, monkeypatch, capsys, mode, warns):
    if mode:
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
    check_mode()
    assert capsys.readouterr().err.count("warning: RAY_AUTH_MODE is 'disabled'") == warns
