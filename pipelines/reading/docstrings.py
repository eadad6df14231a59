"""English sentences from the docstrings of installed Python packages: a corpus without a download.

Packages are found and parsed, never imported. The paragraphs of prose are extracted from a
docstring, their markup is removed, and sentences that look like English are kept. The caller drops
duplicates.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

from cotbert_core.errors import UserError

PREFIX = "docstrings:"
# Names of folders that hold tests or vendored packages.
LEFT_OUT = re.compile(r"_?test(s|ing)?|site-packages|_?vendor(ed)?|third_?party(_files)?|externals")
MOST_BYTES = 1_000_000  # larger files are tables written as code; pandas' frame.py has 0.7 MB
WORDS = range(5, 41)

# Lines that are not prose: underlines and rulers, rows of tables, numpydoc's "name : type".
_NOT_PROSE = re.compile(r"[-=~^\"'`#*+.:_|\s]{3,}$|[|+]|.*[^\s.?!:] {2,}\S|[\w.*`, ]+ :(?: |$)")
_DIRECTIVE = re.compile(r"\.\. (?!(?:note|warning|tip|important|deprecated|version\w+)::)")
_BULLET = r"(?:[-*+•]|\(?\d+[.)]|\(?[a-z]\)|\.\. \w+::)(?:\s+|$)"
_FIELD = r":\w[^:`]*:(?:\s+|$)|[\w.*`]+(?: ?\(.*?\))?:(?:\s+|$)"
_ITEM = re.compile(rf"{_BULLET}(?:{_FIELD})?|{_FIELD}")
# ``code``, :class:`~a.Foo`, [`Foo`], `text <address>`_; longer code and :math: keep their marks.
_QUOTED = re.compile(
    r"\[?(?::(?!math)[\w:]+:)?`{1,2}(?:~(?:\w+\.)*)?([^`<~]{1,30}?)(?:\s*<[^`>]*>)?`{1,2}_{0,2}\]?"
)
# [text](address), [1]_, *emphasis*.
_MARKUP = re.compile(r"\[([^]]+)\]\([^)]*\)| ?\[[^]]+\]_(?=[.,])|(?<!\w)\*+(\S[^*]*)\*+(?!\w)")
_BOUNDARY = re.compile(r"[.?!][\"')]*\s+(?=[\"'(]?[A-Z])")
_SHORT_FORM = re.compile(r"(?<![^\s(])(?:[A-Z]|\d+|e\.g|i\.e|(?i:etc|vs|figs?|eqs?|al|cf|refs?))$")
_WHOLE = re.compile(r"[A-Z].*[.?!]\)?$")
# Patterns of a "sentence" that is code, a label, a fragment, or not English.
_FLAW = re.compile(
    r"[_=\[\]{}<>/\\|`$^~@#*+&;]|\w\(|\(\)|(?<!\be)(?<!\bi)\.\w|:\w|(?:^|\s)[.:]|\.\.|--"  # code
    r"|[^\x00-\u024f\u2010-\u201f]"  # scripts other than Latin
    r"|^(?:\S+ ){0,3}\S+: |(?:\w{5}[.?!]|\d\.) [A-Za-z]"  # a label in front, two in one
    r"|^(?:If|When)\b(?!.*(?:,|\bthen\b))|\b(?:in|by|from|of|see)\.$"  # a part is missing
)
_ODD = re.compile(r"\w*(?:[a-z][A-Z]|\d)\w*")
_COMMON = re.compile(
    r"\b(?i:an?|the|is|are|be|can|will|this|that|it|if|not?|as|at|by|for|from|in|of|on|or|and|to)\b"
)


def package_files(packages: Sequence[str]) -> list[Path]:
    """Return the .py files of installed top-level packages, without tests and vendored packages."""
    return sorted(
        file
        for package in set(packages)
        for root in _roots(package)
        for file in ([root] if root.is_file() else root.rglob("*.py"))
        if not any(map(LEFT_OUT.fullmatch, file.relative_to(root).parts))
    )


def _roots(package: str) -> list[Path]:
    """Return the folders of a package, or a module's file; UserError if it is not installed."""
    spec = find_spec(package) if package.isidentifier() else None  # "a.b" would import a
    places = [] if spec is None else [*(spec.submodule_search_locations or [str(spec.origin)])]
    # A package that loads lazily (mlflow, transformers) may give its folders as Path.
    roots = [p for p in map(Path, places) if p.suffix == ".py" or p.is_dir()]
    if not roots:
        raise UserError(
            f"package {package!r} is not installed as Python files: install it or name another"
        )
    return roots


def documents(path: Path) -> Iterator[list[str]]:
    """Yield each docstring's English sentences, if it has any; nothing for an invalid file."""
    if path.stat().st_size > MOST_BYTES:
        return
    try:
        with warnings.catch_warnings(action="ignore"):  # about invalid escapes in strings
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for docstring in _docstrings(tree):
        found = chain.from_iterable(map(_split, _paragraphs(docstring)))
        if prose := list(filter(_is_prose, found)):
            yield prose


def _docstrings(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield ast.get_docstring(node) or ""
    # Only statements are searched: expressions, most of a tree, contain no definitions.
    for block in ("body", "orelse", "handlers", "finalbody", "cases"):
        for child in getattr(node, block, ()):
            yield from _docstrings(child)


def _paragraphs(docstring: str) -> Iterator[str]:
    """Yield each paragraph as one line; an item of a list or a parameter is a paragraph too."""
    lines: list[str] = []
    margin, hanging = 0, False
    for indent, text in _prose_lines(docstring):
        item = _ITEM.match(text)
        if not text or item or not (indent == margin or (hanging and indent > margin)):
            yield " ".join(lines)
            lines = []
        margin, hanging = indent, item is not None
        lines.append(text[item.end() :] if item else text)
    yield " ".join(lines)


def _prose_lines(docstring: str) -> Iterator[tuple[int, str]]:
    """Yield (indent, text) of each line; the text of a line that is not prose is "", which ends a
    paragraph."""
    fenced = doctest = False
    hidden = len(docstring)  # more deeply indented lines belong to a code block
    for line in docstring.splitlines():
        text, indent = line.strip(), len(line) - len(line.lstrip())
        hidden = hidden if indent > hidden or not text else len(docstring)
        doctest = bool(text) and (doctest or text.startswith(">>>"))
        fence = text.startswith("```")
        fenced ^= fence
        directive = _DIRECTIVE.match(text) is not None
        code = fenced or fence or doctest or directive or indent > hidden
        if directive or (text.endswith("::") and not text.startswith("..")):
            hidden = min(hidden, indent)
        yield indent, "" if code or _NOT_PROSE.match(text) else text


def _split(paragraph: str) -> Iterator[str]:
    """Yield the sentences of a paragraph, without markup."""
    text = " ".join(_MARKUP.sub(r"\1\2", _QUOTED.sub(r"\1", paragraph)).split())
    start = 0
    for end in _BOUNDARY.finditer(text):
        if not _SHORT_FORM.search(text, start, end.start()):
            yield text[start : end.end()].strip()
            start = end.end()
    yield text[start:]


def _is_prose(sentence: str) -> bool:
    """Return whether a sentence is complete, of ordinary length and of ordinary words."""
    words = sentence.split()
    return (
        len(words) in WORDS
        and _WHOLE.match(sentence) is not None
        and _FLAW.search(sentence) is None
        and sum(map(str.isalpha, sentence)) >= 0.8 * sum(map(len, words))
        and sentence.count("(") == sentence.count(")")
        and sentence.count('"') % 2 == 0
        and len(_ODD.findall(sentence)) <= 1
        and len(_COMMON.findall(sentence)) >= 2
    )
