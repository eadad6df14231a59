"""Garbage is not collected while a library is imported for the first time."""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Callable, Iterator

import pytest

from cotbert_core.imports import first_import, skip_last_collection


@pytest.fixture
def collecting() -> Iterator[None]:
    """Collect garbage afterwards, as before: one test stops it."""
    yield
    gc.enable()


@pytest.mark.usefixtures("collecting")
class TestFirstImport:
    def test_pauses_until_the_library_is_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delitem(sys.modules, "tabnanny", raising=False)
        before = gc.get_freeze_count()
        with first_import("tabnanny"):
            import tabnanny  # noqa: F401

            assert not gc.isenabled()
        assert gc.isenabled()
        assert gc.get_freeze_count() > before

    def test_later_blocks_collect(self) -> None:
        with first_import("sys"):
            assert gc.isenabled()

    def test_goes_on_after_an_error(self) -> None:
        with pytest.raises(ImportError), first_import("no_such_library"):
            raise ImportError
        assert gc.isenabled()

    def test_of_a_process_without_collection_stays_without(self) -> None:
        gc.disable()
        with first_import("no_such_library"):
            pass
        assert not gc.isenabled()


@pytest.mark.parametrize("has_triton", [False, True])
def test_a_last_collection_is_skipped_but_with_triton(
    has_triton: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a command, and in a program that opens an encoder."""
    ends: list[Callable[[], None]] = [skip_last_collection]
    monkeypatch.setattr(atexit, "register", ends.append)
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    with first_import("no_such_library"):
        pass
    if has_triton:
        monkeypatch.setitem(sys.modules, "triton", sys)
    for end in ends:
        gc.freeze()
        end()
        assert (gc.get_freeze_count() == 0) is has_triton
    assert len(ends) == 2
    gc.unfreeze()
