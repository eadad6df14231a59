"""cotbert data: check or fetch the folder of SentEval's tasks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cotbert_core.errors import UserError
from pipelines.commands.printing import print_texts
from pipelines.options.declare import INPUT, Option
from pipelines.runtime.ending import print_ending


@dataclass(frozen=True, kw_only=True)
class Data:
    action: Annotated[
        Literal["check", "fetch"],
        Option(
            "check that the tasks of a SentEval folder have as many rows as published, or download "
            "them into a new folder and check them",
            positional=True,
        ),
    ]
    folder: Annotated[
        Path, Option("check or make this SentEval folder", "DIR", positional=True, path="name")
    ]
    url: str | None = Option(
        "(fetch) download this tar archive of SentEval's tasks",
        "URL",
        group=INPUT,
        default="the archive of SimCSE's authors on huggingface.co",
    ).field(None)

    def run(self) -> None:
        from pipelines.evaluating.senteval_download import ADDRESS, fetch_folder
        from pipelines.evaluating.senteval_folder import ABSENT, PRESENT, check_folder, task_place

        if self.action == "check" and self.url:
            raise UserError("--url belongs to `cotbert data fetch`: leave it out")
        if self.action == "fetch":
            fetch_folder(self.folder, self.url or ADDRESS)
        states = check_folder(self.folder)
        print_texts(list(states.items()))
        if wrong := [task for task, state in states.items() if state not in (PRESENT, ABSENT)]:
            raise UserError(
                f"{str(self.folder)!r}: {', '.join(wrong)} cannot be scored as published: download "
                "them again, or leave them out with --tasks"
            )
        absent = [task for task, state in states.items() if state == ABSENT]
        there = [task for task in states if task not in absent]
        places = [f"  {task} would be in {task_place(task)}" for task in absent]
        count = f"{len(there)} of {len(states)} tasks are there, with as many rows as published."
        tasks = ",".join(there) if absent else "sts,transfer"
        evaluate = ("evaluate", "MODEL", "--senteval", self.folder, "--tasks", tasks)
        print_ending("\n".join([count, *places]), self.folder, evaluate)
