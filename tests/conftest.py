"""Shared fixtures: tiny random encoders made on the spot. No network, no GPU, no cluster."""

from __future__ import annotations

import atexit
import gc
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import copied_models
import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the tests compute on CPUs; benchmarks.gpu_check on GPUs
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Products this small gain nothing from threads and, where cores are shared, take 10 times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Looking for cycles among all that the imports and the collection of tests left took 14 s of 93.
gc.disable()

TEXT = """The sentence of a man means that it can be summarized as a short line .
This sentence does not mean something , so it cannot be summarized as a word .
A man is playing the guitar and a woman is singing a song on the stage .
Two dogs are running across the green field while the children watch them .
Penguin is a flightless bird , and it swims better than it walks on the ice .
"What do you want?" she asked , and nobody in the room gave her an answer .
The price of oil rose by three percent on Monday after the meeting in Vienna .
She sells sea shells by the sea shore ; the shells she sells are surely hers .
It's what he didn't say that they'll remember , isn't it ?
Scientists found 12 new species of frogs in the forests of Madagascar in 2019 .
' A man ' means that A man saw A man .
mask pad cls sep unk readout : ' " [ ] < > / ! ? . ,""".splitlines()

SENTENCES = (
    "A man is playing the guitar.",
    "Two dogs run",
    "What do you want?",
    "The children watch the penguin on the ice while a woman is singing a song",
    "oil",
    "It's what he didn't say that they'll remember",
)


# The files that take longest: begun last they would leave the other cores idle at the end.
SLOWEST = (
    *("test_submitted_jobs", "test_train", "test_open_doors", "test_quickstart", "test_tutorial"),
    *("test_tune_cluster", "test_gpu_check", "test_adapt", "test_travelling", "test_track_sync"),
    *("test_disk_full_jobs", "test_augment_translation", "test_pretrain", "test_restart"),
)


def pytest_configure(config: pytest.Config) -> None:
    """Keep what killed jobs leave behind in one folder, which is removed when this process ends.

    The path is short, because paths of sockets begin with it; `tmp_path` stays outside. Workers of
    pytest-xdist inherit the folder.
    """
    if hasattr(config, "workerinput"):
        return
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    folder = tempfile.TemporaryDirectory(prefix="ct-", ignore_cleanup_errors=True)
    atexit.register(folder.cleanup)  # after Ray's own exit handler, which writes there
    os.environ["TMPDIR"] = tempfile.tempdir = folder.name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever reads the shared data is no unit test: six such tests took 25 s of 100. What starts
    Ray has its workers forked."""
    order = {name: number for number, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))
    sharing = {item.path for item in items if "ray_here" in getattr(item, "fixturenames", [])}
    for item in items:
        fixtures = getattr(item, "fixturenames", [])
        if "shared" in fixtures:
            item.add_marker(pytest.mark.real)
        if item.get_closest_marker("ray_local"):
            own = [] if item.path in sharing else ["ray_of_its_own"]
            fixtures[:0] = ["forked_workers", *own]


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    gc.enable()


@pytest.fixture(scope="session")
def opened_once() -> Iterator[None]:
    """Read each model folder once: without this, the unit tests would read the same few 2,000
    times, a third of their time. Files of tests that open none do not wait for transformers."""
    with copied_models.opened_once():
        yield


def pytest_runtest_logfinish() -> None:
    """Compute with one thread again: a job in this process uses as many as there are cores. One
    with --quiet leaves this process quiet."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() > 1:
        torch.set_num_threads(1)
    if progress := sys.modules.get("pipelines.runtime.progress"):
        progress.set_output()


@pytest.fixture(scope="session")
def forked_workers() -> Iterator[None]:
    """Ray's workers are forked from a process that has torch imported (tests/forking): without
    that the tests of this tier take twice as long."""
    forking = Path(__file__).with_name("forking")
    with tempfile.TemporaryDirectory(prefix="forks-") as folder, pytest.MonkeyPatch.context() as m:
        path = f"{folder}/socket"
        # Bound here: a first test that asks at once waits, and does not find no socket.
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(64)
            number = listener.fileno()
            command = [sys.executable, str(forking / "fork_server.py"), folder, str(number)]
            server = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[number])
        m.setenv("COTBERT_FORKS", path)
        m.setenv("PYTHONPATH", str(forking), prepend=os.pathsep)
        yield
        server.terminate()
        server.communicate()


class SharedRay:
    """One Ray for all modules that need no Ray of their own: each start takes 5 s of CPU."""

    def __init__(self) -> None:
        self._running = ExitStack()

    def start(self) -> None:
        import ray

        from pipelines.runtime.ray_session import ray_session

        if not ray.is_initialized():
            self._running.enter_context(ray_session())

    def stop(self) -> None:
        self._running.close()


@pytest.fixture(scope="session")
def shared_ray(forked_workers: None) -> Iterator[SharedRay]:
    shared = SharedRay()
    yield shared
    shared.stop()


@pytest.fixture(scope="module")
def ray_here(shared_ray: SharedRay) -> None:
    """Ray for a module: jobs use a session that is there and leave it alone."""
    shared_ray.start()


@pytest.fixture
def ray_of_its_own(shared_ray: SharedRay) -> None:
    """No Ray is there: commands start one, or use that of RAY_ADDRESS."""
    shared_ray.stop()


@pytest.fixture(scope="session")
def sentences() -> list[str]:
    """A few sentences of different lengths, some without a full stop."""
    return list(SENTENCES)


@pytest.fixture(scope="session")
def bert_folder(tmp_path_factory: pytest.TempPathFactory, opened_once: None) -> str:
    """A random uncased BERT: 2 layers x 32, 128 positions, WordPiece."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {token: i for i, token in enumerate([*special, *_word_pieces()])}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=128,
        **{f"{t.strip('[]').lower()}_token": t for t in special},
    )
    config = BertConfig(pad_token_id=0, max_position_embeddings=128, **_tiny(tokenizer))
    return _save(BertModel, config, tokenizer, tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="session")
def with_mlm_head(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Save random weights of an encoder's kind with an MLM head; return the folder.

    noise: deviation of what is added to the head, whose biases begin as 0 and norms as 1.
    """

    @cache
    def make(folder: str, tied: bool, noise: float) -> Path:
        import torch
        from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer

        torch.manual_seed(1)
        config = AutoConfig.from_pretrained(folder, tie_word_embeddings=tied)
        model = AutoModelForMaskedLM.from_config(config)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if name.startswith(("cls.", "lm_head.")):
                    weight.add_(noise * torch.randn_like(weight))
        place = tmp_path_factory.mktemp("headed")
        model.save_pretrained(place)
        AutoTokenizer.from_pretrained(folder).save_pretrained(place)
        return place

    def save(folder: str, place: Path, *, tied: bool = True, noise: float = 0.0) -> str:
        return str(shutil.copytree(make(folder, tied, noise), place, dirs_exist_ok=True))

    return save


def _word_pieces() -> list[str]:
    """Characters, and four words in five of TEXT, so that the fifth is split.

    Not trained: WordPieceTrainer numbers its tokens differently in every process, and with them
    every vector and loss of these tests.
    """
    lines = " ".join(TEXT).lower()
    characters = sorted(set(lines) - {" "})
    words = sorted({word for word in re.findall(r"[a-z]+", lines) if len(word) > 1})
    kept = [word for number, word in enumerate(words) if number % 5]
    return [*characters, *(f"##{c}" for c in characters), *kept]


@pytest.fixture(scope="session")
def roberta_folder(tmp_path_factory: pytest.TempPathFactory, opened_once: None) -> str:
    """A random RoBERTa: 2 layers x 32, 128 positions after the padding's, byte-level BPE."""
    import json

    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers
    from transformers import RobertaConfig, RobertaModel, RobertaTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(TEXT, trainer)
    model = json.loads(backend.to_str())["model"]
    tokenizer = RobertaTokenizerFast(
        vocab=model["vocab"],
        merges=[tuple(m) for m in model["merges"]],
        mask_token=AddedToken("<mask>", lstrip=True, special=True, normalized=False),
        model_max_length=128,
    )
    config = RobertaConfig(
        pad_token_id=1, max_position_embeddings=130, type_vocab_size=1, **_tiny(tokenizer)
    )
    return _save(RobertaModel, config, tokenizer, tmp_path_factory.mktemp("roberta"))


def _tiny(tokenizer: Any) -> dict[str, Any]:
    # A wide initial range: with BERT's 0.02 all vectors are nearly equal and mistakes hide.
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "initializer_range": 0.2,
    }


def _save(model_class: Any, config: Any, tokenizer: Any, folder: Path) -> str:
    import torch

    torch.manual_seed(0)
    model_class(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(params=["bert", "roberta"])
def encoder_folder(request: pytest.FixtureRequest) -> str:
    """Both backbones in turn."""
    return str(request.getfixturevalue(f"{request.param}_folder"))


@pytest.fixture(scope="session")
def queried_folder(bert_folder: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The random BERT with a prompt for queries."""
    from cotbert_core import SentenceEncoder, Template
    from cotbert_core.encoder.backbone import load_backbone
    from cotbert_core.encoder.pooling_config import PoolingConfig

    folder = tmp_path_factory.mktemp("bert") / "queried"
    pooling = PoolingConfig("mean", query=Template("What do you want? [X]"))
    SentenceEncoder(load_backbone(bert_folder), pooling).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def family(encoder_folder: str, roberta_folder: str) -> str:
    """Of the encoder folder: `cot-roberta` or `cot-bert`, the prefix of its templates' names."""
    return "cot-roberta" if encoder_folder == roberta_folder else "cot-bert"


@pytest.fixture(scope="session")
def tiny_settings() -> Callable[..., Any]:
    """Settings of a small fp32 run without dropout; changes by flat keys."""
    from cotbert_core.settings import TrainSettings, override

    def make(folder: str, changes: dict[str, Any] | None = None) -> TrainSettings:
        family = "cot-roberta" if "roberta" in Path(folder).name else "cot-bert"
        roles = {f"templates.{r}": f"{family}/{r}" for r in ("anchor", "positive", "negative")}
        small = {"batch_size": 4, "max_length": 8, "dropout": 0.0, "precision": "fp32"}
        # At 0.05 random vectors differ from the start: the loss is 1e-5 and shows nothing.
        small["method.temperature"] = 0.5
        return override(TrainSettings(encoder=folder), {**roles, **small, **(changes or {})})

    return make


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared data beside the repository."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not (folder / "data" / "senteval").is_dir():
        pytest.skip(f"no shared data at {folder}")
    return folder


@pytest.fixture
def exact_model(encoder_folder: str) -> Any:
    """The encoder as transformers opens it, in float64: what the slow references run."""
    import torch
    from transformers import AutoModel

    return AutoModel.from_pretrained(
        encoder_folder, dtype=torch.float64, attn_implementation="eager"
    ).eval()
