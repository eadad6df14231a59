"""Ray's token is made, and kept, for its owner alone; a file that is not is mended or refused."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from cotbert_core.errors import UserError
from pipelines.runtime.auth_token import check_mode, default_path, ensure_token, find_token


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


def test_a_folder_that_others_can_write_is_mended(token_file, capsys):
    token_file.chmod(0o600)
    token_file.parent.chmod(0o777)
    assert find_token() == "old"
    assert mode_of(token_file.parent) == 0o755
    assert f"others could write to {token_file.parent}" in capsys.readouterr().err


def test_somebody_elses_file_is_refused(token_file, monkeypatch):
    owner, found = os.geteuid(), os.fstat
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: owner + 1)
        with pytest.raises(UserError, match=f"belongs to user {owner} and .* runs as {owner + 1}"):
            ensure_token()

    def foreign(descriptor):
        """Only the file is somebody else's, and the folder is mine."""
        state = found(descriptor)
        return os.stat_result((*state[:4], owner + 1, *state[5:]))

    monkeypatch.setattr(os, "fstat", foreign)
    with pytest.raises(UserError, match=f"auth_token' belongs to user {owner + 1}"):
        ensure_token()
    assert mode_of(token_file) == 0o644


def test_a_link_stays_in_the_home_folder(token_file, tmp_path):
    inside, outside = token_file.with_name("elsewhere"), tmp_path / "elsewhere"
    token_file.rename(inside)
    token_file.symlink_to(inside)
    assert find_token() == "old"
    assert mode_of(inside) == 0o600
    inside.rename(outside)
    outside.chmod(0o644)
    # Out of the home folder, or to nothing, through which Ray would write its token.
    for target in (outside, tmp_path / "home" / "none"):
        token_file.unlink()
        token_file.symlink_to(target)
        with pytest.raises(UserError, match=r"is a link to .* a link must lead to a file in the h"):
            ensure_token()
    assert mode_of(outside) == 0o644
    assert not target.exists()


def test_a_folder_is_no_token(token_file):
    token_file.unlink()
    token_file.mkdir()
    with pytest.raises(UserError, match=r"cannot be read \("):
        ensure_token()


def test_a_named_file_may_be_a_link_and_must_hold_a_token(home, tmp_path, monkeypatch):
    """As a secret that Kubernetes mounts."""
    named, data = tmp_path / "token", tmp_path / "data"
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(named))
    with pytest.raises(UserError, match="it does not exist"):
        ensure_token()
    data.touch()
    named.symlink_to(data)
    with pytest.raises(UserError, match="it is empty"):
        ensure_token()
    data.write_text("secret\n")
    assert find_token() == "secret"
    assert mode_of(data) == 0o600
    assert not home.exists()


def test_a_home_that_cannot_be_written(home, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    for place, verb in (("/proc/none", "written"), (str(tmp_path / "file"), "read")):
        monkeypatch.setenv("HOME", place)
        with pytest.raises(UserError, match=f"cannot be {verb} .* put a token into RAY_AUTH_TOKEN"):
            ensure_token()
    monkeypatch.setenv("RAY_AUTH_TOKEN", "given")
    assert ensure_token() is None


@pytest.mark.parametrize(("mode", "warns"), [("disabled", 1), ("token", 0), (None, 0)])
def test_no_token_at_all_is_warned_of(home, monkeypatch, capsys, mode, warns):
    if mode:
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
    check_mode()
    assert capsys.readouterr().err.count("warning: RAY_AUTH_MODE is 'disabled'") == warns
