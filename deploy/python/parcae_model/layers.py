"""What a model's layers are, and what the tensors of each are called."""

import contextlib
import inspect

import torch
from torch import nn

from .errors import refuse
from .huggingface import KNOWN


def names_taken(module, names):
    """Those of the names that the module's forward has a parameter for, besides the first; in the names' order."""
    if isinstance(module, Joined):
        return [x for x in names if any(x in names_taken(part, names) for part in module.parts)]
    taken = list(inspect.signature(module.forward).parameters)[1:]
    return [x for x in names if x in taken]


class Joined(nn.Module):
    """Modules one after the other, as one layer."""

    def __init__(self, modules):
        super().__init__()
        self.parts = nn.ModuleList(modules)

    def forward(self, x, **extras):
        for part in self.parts:
            x = part(x, **{name: extras[name] for name in names_taken(part, extras)})
        return x


class Pixels(nn.Module):
    """Pixel values 0 … 255, whole numbers, as real ones: (x / 255 - mean) / deviation, by channel."""

    def __init__(self, mean=(0.5, 0.5, 0.5), deviation=(0.5, 0.5, 0.5)):
        super().__init__()
        as_tensor = lambda x: torch.tensor(x, dtype=torch.float32).view(-1, 1, 1)
        self.register_buffer("scale", 1 / (255 * as_tensor(deviation)), persistent=False)
        self.register_buffer("shift", -as_tensor(mean) / as_tensor(deviation), persistent=False)

    def forward(self, pixels):
        return pixels.to(torch.float32) * self.scale + self.shift


class Layer:
    """A module that is one unit of partitioning, and its tensors by what they are."""

    def __init__(self, name, module, names, paths):
        self.name, self.module = name, module
        self.names = names                         # by id of a tensor: all its names in the model
        self.paths = paths                         # by id of a module: what the model calls it
        self.references = {}                       # by name in the module: "%p0"
        self.parameters, self.buffers, self.constants = [], [], []  # (name in the model, tensor)
        self._seen = {}
        statistics = {id(x) for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)
                      for x in (m.running_mean, m.running_var) if x is not None}
        for local, x in module.named_parameters(remove_duplicate=False):
            if x.dtype != torch.float32 and x.requires_grad:
                refuse(f"{name}.{local}", "", f"is {x.dtype}; parameters are float32: model.float() makes them so")
            trained = x.requires_grad
            self._add("p" if trained else "c", self.parameters if trained else self.constants, local, x, names)
        for local, x in module.named_buffers(remove_duplicate=False):
            is_statistic = id(x) in statistics
            self._add("b" if is_statistic else "c", self.buffers if is_statistic else self.constants, local, x, names)

    def path_of(self, module):
        """Of a module within this one (None: the whole), as the model calls it."""
        return self.name if module is None or module is self.module else self.paths.get(id(module), self.name)

    def _add(self, letter, tensors, local, x, names):
        if id(x) not in self._seen:
            self._seen[id(x)] = f"%{letter}{len(tensors)}"
            tensors.append((names.get(id(x), [f"{self.name}.{local}"])[0], x))
        self.references[local] = self._seen[id(x)]

    def keep_constants(self, used):
        """Drops the constants that no graph uses; returns the references that the rest have now."""
        kept = [i for i in range(len(self.constants)) if f"%c{i}" in used]
        self.constants = [self.constants[i] for i in kept]
        return {f"%c{old}": f"%c{new}" for new, old in enumerate(kept)}

    def tensors(self):
        """By reference, of all that the module has."""
        result = {}
        for letter, all_of in (("p", self.parameters), ("b", self.buffers), ("c", self.constants)):
            result.update({f"%{letter}{i}": x for i, (_, x) in enumerate(all_of)})
        return result

    def likeness(self, shape):
        """Equal for layers that probably compute the same with other tensors."""
        described = lambda all_of: tuple((tuple(x.shape), str(x.dtype)) for _, x in all_of)
        return (repr(self.module), type(self.module), tuple(self.references.items()), described(self.parameters),
                described(self.buffers), described(self.constants), tuple(shape))


def _modules_of(model):
    if isinstance(model, (list, tuple)):
        return [(str(i), x) for i, x in enumerate(model)]
    if isinstance(model, nn.Sequential):
        return list(model.named_children())
    known = KNOWN.get(type(model).__name__)
    if known:
        return [(str(i), x) for i, x in enumerate(known(model))]
    return refuse(type(model).__name__, "", "is neither a list of layers, nor an nn.Sequential, nor one of "
                  + ", ".join(sorted(KNOWN)) + "; give a list of its layers, each a module of one tensor")


def _common_prefix(names):
    parts = [x.split(".")[:-1] for x in names]
    result = parts[0] if parts else []
    for x in parts[1:]:
        result = result[:next((i for i, (a, b) in enumerate(zip(result, x)) if a != b), min(len(result), len(x)))]
    return ".".join(result)


def layers_of(model, names_from=None, pixels=None):
    """Layers with at least one parameter each: modules without any go with the next, those at the end with the last."""
    given = _modules_of(model)
    for name, module in given:
        if not isinstance(module, nn.Module):
            refuse(f"layer {name}", "", f"is a {type(module).__name__}, not an nn.Module")
    if pixels is not None:
        given.insert(0, ("pixels", pixels))
    root = names_from if names_from is not None else model if isinstance(model, nn.Module) else None
    names = {}
    if root is not None:
        for all_of in (root.named_parameters(remove_duplicate=False), root.named_buffers(remove_duplicate=False)):
            for name, x in all_of:
                names.setdefault(id(x), []).append(name)
    paths = {id(m): name for name, m in root.named_modules() if name} if root is not None else {}
    for name, module in given:
        for inner, m in module.named_modules():
            paths.setdefault(id(m), f"{name}.{inner}" if inner else name)
    groups, waiting = [], []
    for name, module in given:
        waiting.append((name, module))
        if any(x.requires_grad for x in module.parameters()):
            groups.append(waiting)
            waiting = []
    if not groups:
        refuse("the model", "", "has no parameter that is trained (requires_grad)")
    groups[-1] += waiting
    layers = []
    for group in groups:
        module = group[0][1] if len(group) == 1 else Joined([x for _, x in group])
        owner = next(name for name, x in group if any(p.requires_grad for p in x.parameters()))
        layer = Layer(owner, module, names, paths)
        if root is not None:
            own = [n for n, x in layer.parameters if len(names.get(id(x), ())) < 2]
            layer.name = _common_prefix(own or [n for n, _ in layer.parameters]) or layer.name
        layers.append(layer)
    return layers


@contextlib.contextmanager
def kept_buffers(module):
    """Whatever computes within, the module's buffers are afterwards as they were: BatchNorm writes to its own."""
    before = [(x, x.clone()) for x in module.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for x, value in before:
                x.copy_(value)


class switched:
    """For a while a module trains or not, and its activations do not write over what they are given (which, at the
    beginning of a layer, is not theirs). As it was afterwards."""

    def __init__(self, modules, training):
        self.all = [x for m in modules for x in m.modules()]
        self.training = training

    def __enter__(self):
        self.before = [(x, x.training, x.__dict__.get("inplace")) for x in self.all]
        for x in self.all:
            x.training = self.training
            if x.__dict__.get("inplace") is True:
                x.inplace = False

    def __exit__(self, *_):
        for x, training, inplace in self.before:
            x.training = training
            if inplace is not None:
                x.inplace = inplace
