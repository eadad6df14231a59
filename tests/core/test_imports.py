"""Garbage is not collected while a library is imported for the first time."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator

import pytest

from cotbert_core.imports import first_import, skip_last_collection


class Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def collecting() -> Iterator[None]:
    """Collect garbage afterwards, as before: one test stops it."""
    yield
    gc.enable()


@pytest.mark.usefixtures("collecting")
class TestFirstImport:
    def test_pauses_until_the_library_is_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delitem(sys.modules, "tabnanny", raising=False)
        with first_import("tabnanny"):
            import tabnanny  # noqa: F401

            assert not gc.isenabled()
        assert gc.isenabled()

    def test_what_the_caller_had_before_is_collected(self) -> None:
        """Else a file in a cycle loses what was written to it when the program ends."""
        cycle = Cycle()
        found = weakref.ref(cycle)
        with first_import("no_such_library"):
            pass
        del cycle
        gc.collect()
        assert found() is None

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
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    if has_triton:
        monkeypatch.setitem(sys.modules, "triton", sys)
    gc.unfreeze()
    skip_last_collection()
    assert (gc.get_freeze_count() == 0) is has_triton
    gc.unfreeze()
