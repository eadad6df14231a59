"""A pretended GPU: tensors that say they are on cuda:0 and are computed on the CPU.

Inside `pretended_gpu()` what is moved to "cuda" or made there becomes a PretendTensor; an operation
on tensors of both devices raises RuntimeError; random numbers come from a stream of their own; each
wait of the host for the device is counted. Kernels, jagged tensors, memory and NCCL are not shown.
"""

import re
from collections import Counter
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cache, partial
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn.utils import clip_grad
from torch.optim import Optimizer
from torch.utils._device import _device_constructors
from torch.utils._python_dispatch import return_and_correct_aliasing

CUDA = torch.device("cuda", 0)
RANDOM = re.compile("dropout|bernoulli|uniform|normal|random|rand|flash|efficient")
# What takes tensors of the CPU beside those of a GPU: copies, and indices, which are copied first.
MIXED = re.compile("^(_?unsafe_)?_?index(_put)?(_impl)?_?$|copy")
# What the host must know before it can continue.
WAITS = re.compile("_local_scalar_dense|nonzero|masked_select|masked_scatter_backward|equal|unique")
FACTORIES = ["arange", "zeros", "ones", "empty", "full", "tensor", "rand", "randn", "eye"]
real_to, real_autocast = Tensor.to, torch.autocast
_device_constructors()  # torch lists its factories at the first use: let it list the real ones


class Gpu:
    """waits: how often the host has waited for the device, by reason."""

    def __init__(self):
        self.waits = Counter()
        self.seed(1)

    def seed(self, seed):
        self.state = torch.Generator().manual_seed(seed + 2**32).get_state()

    @contextmanager
    def own_stream(self):
        """Draw from the GPU's stream, not from the CPU's."""
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self.state)
            yield
            self.state = torch.get_rng_state()

    def look(self, name, args):
        """Refuse an operation on both devices, and count one that makes the host wait."""
        parts = (part for arg in args for part in (arg if type(arg) in (list, tuple) else [arg]))
        given = [part for part in parts if isinstance(part, Tensor)]
        if any(t.dim() and not isinstance(t, PretendTensor) for t in given):
            if not MIXED.search(name):
                raise RuntimeError(f"{name}: expected all tensors on one device: cuda:0 and cpu")
            self.waits[f"{name} of a CPU tensor"] += 1
        by_mask = "index" in name and torch.bool in [t.dtype for t in given[1:]]
        if by_mask or WAITS.search(name):
            self.waits[name] += 1


class PretendTensor(Tensor):
    """Says that it is on cuda:0; `inner` is a tensor of the CPU."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    device, is_cuda = property(lambda self: CUDA), property(lambda self: True)
    get_device, tolist = lambda self: 0, lambda self: self.cpu().tolist()

    @staticmethod
    def __new__(cls, inner):
        layout = (inner.shape, inner.stride(), inner.storage_offset(), None, inner.dtype)
        made = Tensor._make_wrapper_subclass(cls, *layout, requires_grad=inner.requires_grad)
        made.inner = inner
        return made

    def cpu(self):
        gpu.waits["cpu"] += 1
        return self.inner.detach().clone()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        name, random, aliases = traits(func)
        kwargs = {key: value for key, value in (kwargs or {}).items() if key != "device"}
        gpu.look(name, args)
        with gpu.own_stream() if random else nullcontext():
            out = func(*mapped(inner, args), **{key: mapped(inner, v) for key, v in kwargs.items()})
        out = mapped(outer, out)
        return return_and_correct_aliasing(func, args, kwargs, out) if aliases else out


@cache
def traits(func):
    """The name of an operation, whether it is random, and whether it returns what it was given."""
    schema = func._schema
    name = schema.name.split("::")[1]
    aliases = any(part.alias_info for part in (*schema.arguments, *schema.returns))
    return name, bool(RANDOM.search(name)), aliases


def mapped(function, value):
    """`function` of what an operation takes or returns, also in lists of it."""
    if isinstance(value, (tuple, list)):
        return type(value)(mapped(function, part) for part in value)
    return function(value)


def inner(value):
    return value.inner if isinstance(value, PretendTensor) else value


def outer(value):
    return PretendTensor(value) if type(value) is Tensor else value


def to(self, *args, **kwargs):
    """Tensor.to: a copy to the device that is not from pinned memory makes the host wait."""
    device, dtype, non_blocking, _ = torch._C._nn._parse_to(*args, **kwargs)
    here, dtype = isinstance(self, PretendTensor), dtype or self.dtype
    if device is None or (device.type == "cuda") == here:
        return real_to(self, dtype)
    if not here and not (non_blocking and hasattr(self, "pinned")):
        gpu.waits["blocking copy"] += 1
    return real_to(self.cpu(), dtype) if here else outer(real_to(self.detach(), dtype, copy=True))


def pin_memory(self):
    """Tensor.pin_memory: CUDA's refuses a tensor with elements at one place, as `expand` makes."""
    if torch._debug_has_internal_overlap(self) == 1:
        raise RuntimeError("more than one element refers to a single memory location")
    self.pinned = True
    return self


def apply(module, function, recurse=True):
    """nn.Module._apply for weights that become PretendTensors; tied ones stay tied."""
    moved = {}
    for part in module.modules():
        for name, old in part._parameters.items():
            new = old if old is None or id(old) in moved else function(old.detach())
            if type(old) is torch.nn.Parameter and type(new) is PretendTensor:
                moved[id(old)] = torch.nn.Parameter(new, old.requires_grad)
            part._parameters[name] = moved.get(id(old), old)
        part._buffers |= {name: function(b) for name, b in part._buffers.items() if b is not None}
    return module


def make(real, *args, **kwargs):
    """A function that makes tensors, for the GPU too."""
    if torch.device(kwargs.get("device") or "cpu").type != "cuda":
        return real(*args, **kwargs)
    with gpu.own_stream():
        return outer(real(*args, **{**kwargs, "device": "cpu"}))


@contextmanager
def pretended_gpu():
    """Yield the Gpu that the machine has for the length of the block."""
    global gpu
    gpu = Gpu()
    cuda = {"is_available": lambda: True, "_initialized": True, "device": lambda _: nullcontext()}
    cuda |= {"get_device_capability": lambda _: (9, 0), "manual_seed_all": gpu.seed}
    cuda |= {"get_rng_state": lambda *_: gpu.state.clone(), "set_device": lambda _: None}
    cuda |= {"set_rng_state": lambda state, *_: setattr(gpu, "state", state.clone())}
    fakes = [(torch.cuda, name, fake) for name, fake in cuda.items()]
    fakes += [(torch, name, partial(make, getattr(torch, name))) for name in FACTORIES]
    fakes += [(torch, "autocast", lambda device_type, *a, **k: real_autocast("cpu", *a, **k))]
    # With a CUDA build an optimizer's step asks the driver, which a machine without a GPU lacks.
    fakes += [(Optimizer, "_accelerator_graph_capture_health_check", lambda _: None)]
    fakes += [(Tensor, "to", to), (torch.nn.Module, "_apply", apply)]
    fakes += [(torch._C, "_InferenceMode", lambda mode: torch.no_grad())]  # it takes no subclass
    fakes += [(Tensor, "pin_memory", pin_memory)]
    group = "_group_tensors_by_device_and_dtype"  # all gradients are one group
    fakes += [(clip_grad, group, lambda g: {(g[0][0].device, g[0][0].dtype): (g, [])})]
    with ExitStack() as stack:
        for fake in fakes:
            stack.enter_context(patch.object(*fake))
        yield gpu
