"""Sentences from docstrings: each rule with what it keeps and what it drops."""

from __future__ import annotations

import textwrap
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from cotbert_core.errors import UserError
from pipelines.reading import docstrings
from pipelines.reading.docstrings import MOST_BYTES, documents, package_files
from pipelines.reading.sources import plan

PLAIN = "The first axis holds the samples of the batch."
OTHER = "A second sentence follows the first one here."


def sentences(path: Path) -> list[str]:
    return [sentence for document in documents(path) for sentence in document]


def found(tmp_path: Path, docstring: str) -> list[str]:
    """The sentences of a module with this docstring."""
    path = tmp_path / "module.py"
    body = textwrap.dedent(docstring).strip("\n").replace("\\", "\\\\")
    path.write_text(f'"""{body}\n"""\n', encoding="utf-8")
    return sentences(path)


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_every_definition_is_read_and_nothing_else(tmp_path: Path) -> None:
    path = write(
        tmp_path / "module.py",
        '''
        """The module has a docstring of its own."""
        text = "The string of a variable is not a docstring."
        # The comment in a file is not a docstring.
        if True:
            class A:
                """The class has a docstring of its own."""
                async def method(self):
                    """The method has a docstring of its own."""
                    try:
                        pass
                    except OSError:
                        def inner():
                            """The inner function has a docstring of its own."""
        '''.replace("\n        ", "\n"),
    )
    subjects = [s.removesuffix(" has a docstring of its own.") for s in sentences(path)]
    assert subjects == ["The module", "The class", "The method", "The inner function"]


FIRST = b'"""The first axis holds the samples of the batch."""\n'


@pytest.mark.parametrize(
    "content",
    [FIRST + b'print "old"\n', FIRST.replace(b"axis", b"\xff"), FIRST + b"\0",
     FIRST + b"#" * MOST_BYTES],
    ids=["syntax", "encoding", "null byte", "too large"],
)  # fmt: skip
def test_a_file_that_is_not_read_yields_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "module.py").write_bytes(content)
    assert list(sentences(tmp_path / "module.py")) == []
    (tmp_path / "module.py").write_bytes(FIRST)
    assert list(sentences(tmp_path / "module.py")) == [PLAIN]


def test_a_declared_encoding_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_bytes(b'# coding: latin-1\n"""The caf\xe9 is open to all of us."""\n')
    assert sentences(path) == ["The café is open to all of us."]


def test_wrapped_lines_are_joined_and_paragraphs_are_not(tmp_path: Path) -> None:
    wrapped = PLAIN.replace("holds ", "holds\n")
    assert found(tmp_path, f"{wrapped}\n\nThe second line stands alone\n\nhere.") == [PLAIN]


NO_PROSE = {
    "doctest": ">>> The prompt is of a doctest.\nThe output of it is here.",
    "fence": "```python\nThe code in a fence is dropped.\n\nThe second part of it is too.\n```",
    "literal": "For example::\n\n    The code in a block is dropped.\n\n    The rest is too.",
    "code-block": ".. code-block:: python\n\n    The code in a block is dropped.",
    "footnote": ".. [1] The author of a reference is dropped.\n   The rest of it is too.",
    "grid": "| The cell of a table | The other cell of it. |",
    "columns": "The cell of a table    The other cell of it.",
    "underline": "The title of the section is underlined\n--------------------------------------",
    "numpydoc": "The name : of the type or the array.",
}


@pytest.mark.parametrize("kind", NO_PROSE)
def test_blocks_that_are_not_prose_are_dropped(tmp_path: Path, kind: str) -> None:
    assert found(tmp_path, f"{PLAIN}\n\n{NO_PROSE[kind]}\n\n{OTHER}") == [PLAIN, OTHER]


PROSE = {
    "numpydoc": "x : array\n    {0}",
    "typed": "x (int, optional): The first axis holds\n    the samples of the batch.",
    "google": "Args:\n    x: The first axis holds\n        the samples of the batch.",
    "sphinx": ":param int x: The first axis holds\n    the samples of the batch.",
    "bullet": "* The first axis holds\n  the samples of the batch.",
    "number": "1. The first axis holds\n   the samples of the batch.",
    "section": "Returns\n-------\n{0}",
    "note": ".. note::\n\n    {0}",
    "note-inline": ".. note:: The first axis holds\n    the samples of the batch.",
    "header": "Parameters:\n    {0}",
}


@pytest.mark.parametrize("kind", PROSE)
def test_prose_in_a_block_is_kept_without_its_header(tmp_path: Path, kind: str) -> None:
    assert found(tmp_path, PROSE[kind].format(PLAIN)) == [PLAIN]


@pytest.mark.parametrize(
    "marked",
    ["``batch``", "`batch`", "[`batch`]", "[`~package.batch`]", ":class:`batch`",
     ":class:`~package.module.batch`", ":ref:`batch <a-label>`",
     "`batch <https://example.org/a>`_", "[batch](https://example.org/a)", "*batch*", "**batch**",
     "batch [1]_"],
)  # fmt: skip
def test_markup_is_taken_off(tmp_path: Path, marked: str) -> None:
    assert found(tmp_path, PLAIN.replace("batch", marked)) == [PLAIN]


@pytest.mark.parametrize(
    "marked",
    ["``a name of more than thirty characters``", "``axis=0``", ":math:`n`", "`package.batch`",
     "https://example.org", "batch_size", "batch()"],
)  # fmt: skip
def test_a_sentence_with_code_in_it_is_dropped(tmp_path: Path, marked: str) -> None:
    assert found(tmp_path, f"{PLAIN.replace('batch', marked)} {OTHER}") == [OTHER]


def test_a_sentence_ends_at_its_mark(tmp_path: Path) -> None:
    parts = [PLAIN, "Is this the second one (of four)?", "It is, and it ends here!", OTHER]
    assert found(tmp_path, " ".join(parts)) == parts


@pytest.mark.parametrize(
    "sentence",
    [
        "the first letter of it is small.",
        "The end of it is not there",
        "It is short.",
        "The " + "very " * 36 + "long end of it.",
        "The values are 1 2 3 4 5 6 7 8 9 of 10.",
        "The DataFrame and the MultiIndex are two classes.",
        "Batch size multiplier learning rate schedule.",
        "The bracket (of this sentence is not closed.",
        'The quotation " of this sentence is not closed.',
        "Error message: the text that is shown to users.",
        "If the two arrays are not of one shape.",
        "The algorithm is the one that is described in.",
        "The number of the версия is shown here.",
        "The value defaults to 1. It is an integer.",
    ],
)
def test_what_does_not_read_as_english_is_dropped(tmp_path: Path, sentence: str) -> None:
    assert found(tmp_path, f"{sentence}\n\n{OTHER}") == [OTHER]


@pytest.mark.parametrize(
    "sentence",
    [
        "It is short but whole.",
        "The " + "very " * 35 + "long end of it.",
        "The DataFrame is the class that is used most.",
        "The bracket (of this sentence) is closed.",
        'The "quotation" of this sentence is closed.',
        "If the two arrays are of one shape, they are added.",
        # A short form does not end a sentence.
        "Some formats, e.g. The Matrix Market format, are read.",
        "This is shown by the curves in Fig. Two of the paper.",
        "This was first described by Donald E. Knuth in a book.",
        "The names, values, etc. All of them are kept.",
        "The old (i.e. Second) version of the format is read.",
    ],
)
def test_what_reads_as_english_is_kept(tmp_path: Path, sentence: str) -> None:
    assert found(tmp_path, sentence) == [sentence]


def test_package_files_leaves_out_tests_and_vendored(tmp_path: Path, monkeypatch) -> None:
    names = ["__init__.py", "b.py", "a/latest.py", "a/vendors/x.py"]
    others = ["tests/a.py", "a/testing/b.py", "_vendor/c.py", "a/thirdparty_files/d/e.py"]
    others += ["lib/site-packages/f.py", "notes.txt"]
    root = tmp_path / "tests" / "madeup_package"
    for name in names + others:
        write(root / name, "raise SystemExit('imported')")
    write(tmp_path / "tests" / "madeup_module.py", "raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path / "tests")
    files = package_files(["madeup_package", "madeup_module", "madeup_package"])
    expected = [root / name for name in names] + [root.parent / "madeup_module.py"]
    assert files == sorted(expected)


def test_a_package_may_name_its_folders_by_path(tmp_path: Path, monkeypatch) -> None:
    spec = ModuleSpec("lazy", None, is_package=True)
    spec.submodule_search_locations = [tmp_path]  # type: ignore[list-item]
    monkeypatch.setattr(docstrings, "find_spec", lambda _: spec)
    (tmp_path / "a.py").write_text("")
    assert package_files(["lazy"]) == [tmp_path / "a.py"]


@pytest.mark.parametrize("name", ["no_such_package", "sys", "json.decoder", ""])
def test_a_package_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(UserError, match=rf"{name!r} is not installed.*install it"):
        package_files(["json", name])


def test_docstrings_of_no_package_are_refused() -> None:
    with pytest.raises(UserError, match="input 'docstrings:,' names no package: write docstrings:"):
        plan(["docstrings:,"])
