"""The sentences, labels and files of the seven transfer tasks in a SentEval folder.

Examples are in SentEval's order (by number of words, then by label; see its binary.py, trec.py and
mrpc.py), so that a seed gives the same folds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cotbert_core.errors import UserError, unknown

BINARY = ("0", "1")
TREC_CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
# SentEval's text for a line without words, which preserves the published numbers of examples: CR
# (3,775) has 4 such lines, MPQA (10,606) has 3.
NO_WORDS = "."


@dataclass(frozen=True)
class Part:
    """N examples. sides: one list of N sentences, or two for pairs. labels: (N,) ints."""

    sides: tuple[list[str], ...]
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)


# The one or two sentences of an example, and the number of its class.
Example = tuple[tuple[str, ...], int]


@dataclass(frozen=True)
class TransferTask:
    """The files of a task inside the SentEval folder, and their reader.

    protocol: a name in transfer.PROTOCOLS. files: paths by part; two paths are a file for each
    class, the higher class first. read: function from the paths of a part to its examples.
    """

    protocol: str
    files: dict[str, tuple[str, ...]]
    read: Callable[[Sequence[Path]], list[Example]]

    @property
    def paths(self) -> list[str]:
        """The paths of all files of the task, relative to the SentEval folder."""
        return [name for names in self.files.values() for name in names]

    def load(self, senteval_dir: str | Path) -> dict[str, Part]:
        """Return the parts by name; UserError for a missing file or a line without a label."""
        folder = Path(senteval_dir)
        missing = [name for name in self.paths if not (folder / name).is_file()]
        if missing:
            raise UserError(
                f"SentEval folder {str(folder)!r} lacks {', '.join(missing)}: add the task's "
                "files or choose other tasks"
            )
        return {
            part: _ordered(self.read([folder / name for name in names]))
            for part, names in self.files.items()
        }


def _ordered(examples: list[Example]) -> Part:
    def place(example: Example) -> list[int]:
        return [*(len(side.split()) for side in example[0]), example[1]]

    examples = sorted(examples, key=place)
    sides = zip(*([side or NO_WORDS for side in sides] for sides, _ in examples), strict=True)
    return Part(tuple(map(list, sides)), np.array([label for _, label in examples]))


def _read_classes(paths: Sequence[Path]) -> list[Example]:
    """Read files with one sentence per line, one file for each class."""
    return [
        ((_words(line),), label)
        for label, path in zip(reversed(range(len(paths))), paths, strict=True)
        for line in senteval_lines(path)
    ]


def _read_sst(paths: Sequence[Path]) -> list[Example]:
    """Read a file with lines `sentence<tab>label`."""
    (path,) = paths
    examples: list[Example] = []
    for number, line in enumerate(senteval_lines(path), 1):
        text, _, label = line.rpartition("\t")
        examples.append(((_words(text),), _class(label, BINARY, path, number)))
    return examples


def _read_trec(paths: Sequence[Path]) -> list[Example]:
    """Read a file with lines `COARSE:fine question`; the class is the coarse label."""
    (path,) = paths
    examples: list[Example] = []
    for number, line in enumerate(senteval_lines(path), 1):
        label, _, rest = line.partition(":")
        text = rest.partition(" ")[2]
        examples.append(((_words(text),), _class(label, TREC_CLASSES, path, number)))
    return examples


def _read_mrpc(paths: Sequence[Path]) -> list[Example]:
    """Read a file with lines `label<tab>id<tab>id<tab>sentence<tab>sentence` after a header."""
    (path,) = paths
    examples: list[Example] = []
    for number, line in enumerate(senteval_lines(path)[1:], 2):
        fields = line.split("\t")
        label = _class(fields[0], BINARY, path, number)
        if len(fields) < 5:
            raise UserError(
                f"{path}, line {number} has {len(fields)} tab-separated fields and must have 5 "
                "(the label, two numbers and two sentences): download the task again"
            )
        examples.append(((_words(fields[3]), _words(fields[4])), label))
    return examples


def _class(label: str, classes: Sequence[str], path: Path, line: int) -> int:
    label = label.strip()
    if label not in classes:
        raise UserError(
            f"{path}, line {line}: label is {label[:20]!r}: give one of {', '.join(classes)}"
        )
    return classes.index(label)


def _words(text: str) -> str:
    return " ".join(text.split())


def senteval_lines(path: Path) -> list[str]:
    """Return the lines of a file in UTF-8 or, if it is not valid UTF-8, in ISO-8859-1.

    Raises UserError for a file that is missing or empty.
    """
    if not path.is_file():
        raise UserError(f"{str(path)!r} does not exist: give a SentEval folder that has it")
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("iso-8859-1")
    if not text.strip():
        raise UserError(f"{path} is empty: download the task again")
    # Not splitlines: byte 0x85, an ellipsis in Windows files, is a line end in ISO-8859-1.
    return [line.strip("\r") for line in text.removesuffix("\n").split("\n")]


def _opposed(higher: str, lower: str) -> TransferTask:
    return TransferTask("nested", {"train": (higher, lower)}, _read_classes)


# The tasks with SentEval's own names of folders and files.
TRANSFER_TASKS: dict[str, TransferTask] = {
    "MR": _opposed("MR/rt-polarity.pos", "MR/rt-polarity.neg"),
    "CR": _opposed("CR/custrev.pos", "CR/custrev.neg"),
    "SUBJ": _opposed("SUBJ/subj.objective", "SUBJ/subj.subjective"),
    "MPQA": _opposed("MPQA/mpqa.pos", "MPQA/mpqa.neg"),
    "SST2": TransferTask(
        "train-dev-test",
        {part: (f"SST/binary/sentiment-{part}",) for part in ("train", "dev", "test")},
        _read_sst,
    ),
    "TREC": TransferTask(
        "train-test",
        {"train": ("TREC/train_5500.label",), "test": ("TREC/TREC_10.label",)},
        _read_trec,
    ),
    "MRPC": TransferTask(
        "train-test",
        {part: (f"MRPC/msr_paraphrase_{part}.txt",) for part in ("train", "test")},
        _read_mrpc,
    ),
}


def transfer_task_name(name: str) -> str:
    """Return the name of a task in any spelling (sst-2, Trec); UserError if it is unknown."""
    key = name.replace("-", "").upper()
    if key not in TRANSFER_TASKS:
        raise unknown("transfer task", name, TRANSFER_TASKS)
    return key


def missing_transfer_tasks(senteval_dir: str | Path, tasks: Sequence[str]) -> list[str]:
    """Return the tasks of which a file does not exist."""
    folder = Path(senteval_dir)
    return [
        task
        for task in tasks
        if not all((folder / path).is_file() for path in TRANSFER_TASKS[task].paths)
    ]
