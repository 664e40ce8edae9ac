"""export(): a model as a folder that Parcae trains."""

import hashlib
import json
import os
import pathlib
import sys

import torch
from safetensors.torch import save_file

from .errors import CannotExport, first_line, line_of_forward, place_of_exception, quiet, refuse
from .graph import Slots, references_in, run_graph, write_graph
from .huggingface import KNOWN, is_pretrained
from .layers import kept_buffers, layers_of, names_taken, switched
from .measure import activations_of, flop_of
from .serving import Rows, require_text

FORMAT, VERSION = "parcae.exported_model", 1
LOSSES = ("cross_entropy", "mean_squared_error", "in_last_layer")


def export(model, example, folder, *, loss="cross_entropy", targets=None, names_from=None, pixels=None, vocabulary=None,
           classes=None, mask_token=None, serve=False):
    """Writes `folder`: model.json (graphs, names, shapes) and weights.safetensors. Returns what model.json says.

    model       a list of layers, an nn.Sequential, or a model of a class in parcae_model.huggingface.KNOWN. What lies
                between two layers is one float32 tensor whose first dimension is the batch.
    example     one batch of at least two samples, whole numbers: tokens [batch, sequence], or pixels 0 … 255
                [batch, channels, height, width], height = width. Or several by name, those first: {"input_ids": …,
                "attention_mask": …}. A layer whose forward has a parameter of such a name is given it.
    loss        "cross_entropy" of the last layer's output and the targets, "mean_squared_error", or "in_last_layer":
                the last layer takes (input, targets) and returns the loss, a scalar; `targets` is then an example.
    names_from  the module whose names the tensors get, if `model` is a list of its parts
    pixels      parcae_model.Pixels(mean, deviation): what makes real numbers of pixels, put before the first layer
    vocabulary  number of token values; default: that of the first embedding
    classes     number of labels, if the loss is in the last layer and the targets are one label for each sample
    mask_token  the model is trained to fill in masked tokens; this one stands for them
    serve       the folder can be served, too: a layer whose forward has a parameter `positions` is given those of the
                tokens [batch, 1] there. The layers are compared, one position after the other with all at once.
    The model itself stays as it is. Raises CannotExport: one line.
    """
    example, extras = _inputs_of(example)
    exporter = _Exporter(loss, targets, extras)
    with torch.random.fork_rng(devices=[]):
        layers = layers_of(model, names_from, pixels)
        if type(model).__name__ in KNOWN:
            exporter.compare_with_whole(model, layers, example, pixels)
        description = exporter.describe(layers, example, vocabulary, classes, mask_token, serve)
    exporter.add_huggingface(description, model if names_from is None else names_from)
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    stored = {name: x.detach().contiguous().clone() for name, x in exporter.stored.items()}
    save_file(stored, folder / "weights.safetensors", metadata={"format": "pt", **description["ties"]})
    _make_readable(folder / "weights.safetensors")
    (folder / "model.json").write_text(_text_of(description))
    print(_said(description, folder, stored), file=sys.stderr)
    return description


def _make_readable(file):
    """As other files are: safetensors leaves its own to the user alone."""
    mask = os.umask(0o077)
    os.umask(mask)
    file.chmod(0o666 & ~mask)


def _said(description, folder, stored):
    """What was written, and what to do with it."""
    layers = description["layers"]
    trained = {n for x in layers for n in x["parameters"]} - set(description["ties"])
    values = sum(stored[n].numel() for n in trained)
    size = sum(x.numel() * x.element_size() for x in stored.values())
    kind = description["input"]["kind"]
    return (f"{folder}: {len(layers)} layers, {values:,} parameters, {size / 1e6:,.1f} MB\n"
            f'next: [model] kind = "exported", path = "{folder.resolve()}" in a job file, with [data] of {kind} '
            "(`parcae job-keys`), then `parcae submit JOB.toml --check`")


def _text_of(description):
    """One node, layer or tensor a line."""
    compact = lambda x: json.dumps(x, ensure_ascii=False, separators=(", ", ": "))

    def part(key, value):
        if key == "graphs":
            pair = lambda x: "{" + ",\n".join(f'"{mode}": {graph_text(g)}' for mode, g in x.items()) + "}"
            return "[\n" + ",\n".join(map(pair, value)) + "\n]"
        if isinstance(value, list) and value and isinstance(value[0], dict):
            return "[\n" + ",\n".join(map(compact, value)) + "\n]"
        if isinstance(value, dict) and any(isinstance(x, (dict, list)) for x in value.values()):
            return "{\n" + ",\n".join(f"{compact(k)}: {compact(v)}" for k, v in value.items()) + "\n}"
        return compact(value)

    def graph_text(graph):
        nodes = ",\n".join(map(compact, graph["nodes"]))
        return f'{{"nodes": [\n{nodes}\n], "output": {compact(graph["output"])}}}'

    return "{\n" + ",\n".join(f'"{key}": {part(key, value)}' for key, value in description.items()) + "\n}\n"


class _Exporter:
    def __init__(self, loss, targets, extras):
        if loss not in LOSSES:
            raise CannotExport(f'the loss "{loss}" is not known; it is one of {", ".join(LOSSES)}')
        if (loss == "in_last_layer") != (targets is not None):
            raise CannotExport("an example of the targets is given if, and only if, the loss is in the last layer")
        self.loss, self.targets, self.extras = loss, targets, extras
        self.rows = None  # if the model is to be served
        self.graphs, self.keys, self.likes = [], {}, {}
        self.stored, self.digests = {}, {}   # by name in weights.safetensors
        self.names_stored, self.same = {}, {}

    def describe(self, layers, example, vocabulary, classes, mask_token, serve):
        kind = _input_kind(example)
        if serve:
            require_text(kind, self.loss, self.extras, classes)
            self.rows = Rows(example, vocabulary or _vocabulary_of(layers[0].module))
        x, described, owners, ties, used = example, [], {}, {}, set()
        for number, layer in enumerate(layers):
            last = number + 1 == len(layers)
            extra = (self.targets,) if last and self.targets is not None else ()
            taken = {name: self.extras[name] for name in names_taken(layer.module, self.extras)}
            used.update(taken)
            output = self.run(layer, x, extra, taken, scalar=bool(extra))
            graph = self.graph_for(layer, (x, *extra), taken)
            described.append({"name": layer.name, "graph": graph,
                              "parameters": [name for name, _ in self.own_names(layer, number, owners, ties)],
                              "buffers": [self.store(name, t) for name, t in layer.buffers],
                              "constants": [self.store_constant(name, t) for name, t in layer.constants],
                              "output": list(output.shape[1:]),
                              "forward_flop": flop_of(layer.module, (x, *extra), taken) / len(example),
                              "activation_values": activations_of(layer, (x, *extra), taken) / len(example)})
            if self.rows:
                described[-1]["cached_values"] = self.rows.compare(layer, self.graphs[graph]["serve"])
            x = output
        for name in self.extras:
            if name not in used:
                raise CannotExport(f'no layer takes "{name}": none has a parameter of that name; leave it out')
        tensors = {name: [str(t.dtype).removeprefix("torch."), list(t.shape), self.digests[name]]
                   for name, t in self.stored.items()}
        return {"format": FORMAT, "version": VERSION, "torch": torch.__version__.split("+")[0],
                "input": self.input(kind, example, layers, x, vocabulary, classes),
                "loss": self.loss, "mask_token": mask_token, "ties": ties,
                "layers": described, "tensors": tensors, "graphs": self.graphs}

    def add_huggingface(self, description, model):
        """What `parcae export --layout huggingface` writes besides what is trained, for from_pretrained."""
        if not is_pretrained(model):
            return
        config = {**json.loads(model.config.to_json_string()), "architectures": [type(model).__name__],
                  "torch_dtype": "float32"}
        trained = {id(x) for x in model.parameters() if x.requires_grad}
        described = {n for layer in description["layers"] for n in layer["parameters"] + layer["buffers"]}
        frozen = {name: x.detach() for name, x in model.state_dict(keep_vars=True).items()
                  if name not in described and id(x) not in trained}
        for name, x in frozen.items():
            if name in self.stored and not torch.equal(self.stored[name], x):
                raise CannotExport(f"two tensors have the name {name}; give names_from=")
            self.stored[name], self.digests[name] = x, _digest(x)
            description["tensors"][name] = [str(x.dtype).removeprefix("torch."), list(x.shape), self.digests[name]]
        description["huggingface"] = {"config": config, "frozen": list(frozen)}

    def input(self, kind, example, layers, output, vocabulary, classes):
        result = self.first_input(kind, example, layers, output, vocabulary, classes)
        if self.extras:
            result["extras"] = [{"name": name, "shape": list(x.shape[1:])} for name, x in self.extras.items()]
        return result

    def first_input(self, kind, example, layers, output, vocabulary, classes):
        if kind == "tokens":
            if vocabulary is None:
                vocabulary = _vocabulary_of(layers[0].module)
            result = {"kind": "tokens", "sequence": example.shape[1], "vocabulary": vocabulary}
            if self.loss == "cross_entropy" and output.dim() == 2:
                classes = output.shape[1]
            if classes is not None:
                return {**result, "classes": classes}
            wanted = [example.shape[1], vocabulary]
            fits = output.dim() == 3 and output.shape[1] == wanted[0] and output.shape[2] >= vocabulary
            if self.loss == "cross_entropy" and not fits:
                refuse(layers[-1].name, line_of_forward(layers[-1].module),
                       f"returns {list(output.shape[1:])} for a sample; cross-entropy of tokens wants {wanted}")
            return result
        if self.loss == "cross_entropy":
            if output.dim() != 2:
                refuse(layers[-1].name, line_of_forward(layers[-1].module),
                       f"returns {list(output.shape[1:])} for a sample; cross-entropy of images wants one number for "
                       "each label")
            classes = output.shape[1]
        elif classes is None:
            raise CannotExport("say how many labels there are (classes=)")
        return {"kind": "images", "channels": example.shape[1], "image": example.shape[2], "classes": classes}

    def compare_with_whole(self, model, layers, example, pixels):
        """What a model of Hugging Face does around its layers, the wrappers do as its configuration mostly has it."""
        _input_kind(example)
        taken = [{n: self.extras[n] for n in names_taken(x.module, self.extras)} for x in layers]
        # Not the example itself, which may be all zeros: of tokens that are alike no mask makes a difference.
        torch.manual_seed(0)
        x = torch.randint(256 if example.dim() == 4 else model.config.vocab_size, example.shape)
        try:
            with switched([model], False), torch.no_grad():
                extras = {n: value for names in taken for n, value in names.items()}
                expected = model(x if pixels is None else pixels(x), **extras).logits
                for layer, names in zip(layers, taken):
                    x = layer.module(x, **names)
        except Exception as e:
            place, _ = place_of_exception(e)
            refuse(type(model).__name__, place or line_of_forward(model), f"fails on the example: {first_line(e)}")
        # Not bit for bit: without padding the model's own mask may be none at all.
        if not (x - expected).abs().max() <= 1e-4 * expected.abs().max():
            refuse(type(model).__name__, line_of_forward(model),
                   "its layers, one after the other, do not compute what the model does; known are attention as "
                   'attn_implementation="sdpa" makes it, and windows no shorter than the sequence')

    # --- one layer

    def run(self, layer, x, extra, taken, scalar):
        """The layer's output for the example, in evaluation."""
        try:
            with switched([layer.module], False), torch.no_grad():
                output = layer.module(x, *extra, **taken)
        except Exception as e:
            _refuse_for(e, layer, f"fails on the example: {first_line(e)}")
        place = line_of_forward(layer.module)
        if isinstance(output, (tuple, list, dict)):
            refuse(layer.name, place, f"returns {len(output)} values ({type(output).__name__}); exactly one tensor "
                                      "lies between layers")
        if not isinstance(output, torch.Tensor):
            refuse(layer.name, place, f"returns a {type(output).__name__}, not a tensor")
        if output.dtype != torch.float32:
            refuse(layer.name, place, f"returns {output.dtype}; what lies between layers is float32")
        if scalar and output.dim() != 0:
            refuse(layer.name, place, f"returns {list(output.shape)}, but is to return the loss, a scalar")
        if not scalar and (output.dim() < 2 or output.shape[0] != x.shape[0]):
            refuse(layer.name, place,
                   f"returns {list(output.shape)} for {list(x.shape)}; the first dimension is the batch")
        return output

    def graph_for(self, layer, inputs, taken):
        """The number of the layer's graphs: those of an earlier layer, if they compute what this one does."""
        like = layer.likeness(inputs[0].shape), len(inputs), tuple(taken)
        given = dict(zip(("%x", "%y"), inputs))
        given.update({f"%s{i}": x for i, (name, x) in enumerate(self.extras.items()) if name in taken})
        for number, renamed in self.likes.get(like, ()):
            before = list(layer.constants)
            layer.constants = [before[int(old[2:])] for old in renamed]
            if self.computes_alike(layer, self.graphs[number], given, taken):
                return number
            layer.constants = before
        graphs = {mode: self.export_one(layer, inputs, taken, list(given), mode == "train")
                  for mode in ("train", "eval")}
        if self.rows:
            x, positions = self.rows.inputs(layer)
            graphs["serve"] = self.export_one(layer, (x,), positions, ["%x", "%t"], False)
        used = {r for g in graphs.values() for node in g["nodes"] for r in references_in(node["args"])}
        for i, (name, _) in enumerate(layer.parameters):
            if not any(f"%p{i}" in references_in(node["args"]) for node in graphs["train"]["nodes"]):
                refuse(layer.name, line_of_forward(layer.module),
                       f"does not use its parameter {name}; remove it, or freeze it (requires_grad_(False))")
        self.compare_gradients(layer, graphs["train"], given, taken)
        renamed = layer.keep_constants(used)
        graphs = json.loads(json.dumps(graphs))
        for g in graphs.values():
            for node in g["nodes"]:
                node["args"] = _renamed(node["args"], renamed)
        shapes = [[list(t.shape) for _, t in all_of] for all_of in (layer.parameters, layer.buffers, layer.constants)]
        key = json.dumps([graphs, shapes])
        if key not in self.keys:
            self.keys[key] = len(self.graphs)
            self.graphs.append(graphs)
        self.likes.setdefault(like, []).append((self.keys[key], list(renamed)))
        return self.keys[key]

    @staticmethod
    def computes_alike(layer, graphs, given, taken):
        """Whether the graphs of another layer compute what this one does, both as it trains and as it evaluates."""
        x = given["%x"]
        if x.is_floating_point():  # of an example that is all zeros samples or places may be alike
            x = torch.randn(x.shape, generator=torch.Generator().manual_seed(0))

        def output(run):
            torch.manual_seed(0)
            return run({**given, "%x": x})

        for mode in ("train", "eval"):
            with switched([layer.module], mode == "train"), kept_buffers(layer.module), torch.no_grad():
                expected = output(_called(layer, taken))
            with kept_buffers(layer.module), torch.no_grad():
                came = output(lambda x: run_graph(graphs[mode], {**layer.tensors(), **x}))
            if not torch.equal(came, expected):
                return False
        return True

    @staticmethod
    def compare_gradients(layer, graph, given, taken):
        """With the module's own, bit for bit: a backward that somebody wrote leaves no trace in a graph."""
        def gradients(run):
            torch.manual_seed(0)
            x = given["%x"].detach()
            wanted = {name: p for name, p in layer.parameters}
            if x.is_floating_point():
                x = wanted["its input"] = x.clone().requires_grad_()
            output = run({**given, "%x": x})
            made = torch.linspace(-1, 1, output.numel()).view_as(output)
            return dict(zip(wanted, torch.autograd.grad(output, list(wanted.values()), made, allow_unused=True)))

        try:
            with switched([layer.module], True), kept_buffers(layer.module), torch.enable_grad():
                expected = gradients(_called(layer, taken))
                came = gradients(lambda x: run_graph(graph, {**layer.tensors(), **x}))
        except Exception as e:
            _refuse_for(e, layer, f"fails on the example, backward: {first_line(e)}")
        for name, x in expected.items():
            y = came[name]
            if (x is None) != (y is None) or x is not None and not torch.equal(x.nan_to_num(), y.nan_to_num()):
                refuse(layer.name, line_of_forward(layer.module),
                       f"the gradient of {name} is not that of its operators; a function with a backward of its own "
                       "cannot be exported")

    def export_one(self, layer, inputs, taken, references, training):
        batch = torch.export.Dim("batch", min=1)
        dynamic = lambda x: {0: batch} if x.dim() > 0 else None
        inputs = (*inputs, *taken.values())
        shapes = tuple(map(dynamic, inputs))
        module = _Called(layer.module, len(inputs) - len(taken), list(taken)) if taken else layer.module
        names = {f"module.{n}": r for n, r in layer.references.items()} if taken else layer.references
        try:
            with switched([layer.module], training), quiet():
                program = torch.export.export(module, inputs, strict=False,
                                              dynamic_shapes=(shapes,) if taken else shapes)
        except Exception as e:
            _refuse_for(e, layer, _reason(e))
        return write_graph(program, Slots(names, references), _Paths(layer, module), training)

    # --- tensors

    def own_names(self, layer, number, owners, ties):
        """The layer's parameters by unique names; one that an earlier layer has too is tied to it."""
        taken = {n for names in owners.values() for n, _ in names} | set(self.stored)
        for name, x in layer.parameters:
            if id(x) in owners:
                first, where = owners[id(x)][0]
                if where == number:
                    continue
                if ties:
                    refuse(layer.name, "", f"shares {first} with another layer, as others share "
                                           f"{next(iter(ties.values()))}; one pair of tied parameters is known")
                own = self.second_name(layer, x, name, first)
                ties[own] = first
                owners[id(x)].append((own, number))
                yield own, x
                continue
            if name in taken:
                refuse(layer.name, "", f"has a second parameter of the name {name}")
            owners[id(x)] = [(name, number)]
            self.store(name, x)
            yield name, x

    @staticmethod
    def second_name(layer, x, name, first):
        """What the model calls a parameter where it is used again."""
        local = next(n for n, y in layer.module.named_parameters(remove_duplicate=False) if y is x)
        known = [n for n in layer.names.get(id(x), [name, f"{layer.name}.{local}"]) if n != first]
        return known[-1] if known else f"{first}.tied"

    def store(self, name, x):
        if name in self.stored and self.stored[name] is not x:
            raise CannotExport(f"two tensors have the name {name}; give names_from=")
        self.stored[name] = x
        self.digests[name] = _digest(x)
        return name

    def store_constant(self, name, x):
        """Equal ones are stored once."""
        key = str(x.dtype), tuple(x.shape), _digest(x)
        if key not in self.same:
            while name in self.stored:
                name += "_"
            self.same[key] = self.store(name, x)
        return self.same[key]


def _vocabulary_of(module):
    found = [m for m in module.modules() if isinstance(m, torch.nn.Embedding)]
    if not found:
        raise CannotExport("the first layer has no embedding: say how many values a token has (vocabulary=)")
    return found[0].num_embeddings


def _called(layer, taken):
    """A layer as a function of what is given by reference."""
    return lambda x: layer.module(*(x[n] for n in ("%x", "%y") if n in x), **taken)


def _refuse_for(error, layer, why):
    place, module = place_of_exception(error)
    refuse(layer.path_of(module), place or line_of_forward(layer.module), why)


class _Paths:
    """What the model calls the module that a node of an exported module is of."""

    def __init__(self, layer, exported):
        self.layer, self.exported = layer, exported

    def module(self, node):
        within = list((node.meta.get("nn_module_stack") or {}).values())
        return self.exported.get_submodule(within[-1][0]) if within and within[-1][0] else self.layer.module

    def of(self, node):
        return self.layer.path_of(self.module(node))

    def line(self, node):
        """Where no line of the user's own is on the way to a node: its module's, which is PyTorch's."""
        return line_of_forward(self.module(node))


class _Called(torch.nn.Module):
    """A layer called with positions only: so the order of a graph's inputs is known."""

    def __init__(self, module, inputs, names):
        super().__init__()
        self.module, self.inputs, self.names = module, inputs, names

    def forward(self, *given):
        return self.module(*given[:self.inputs], **dict(zip(self.names, given[self.inputs:])))


def _inputs_of(example):
    """The first of several inputs, and the others by name, as training gives them: int64."""
    if not isinstance(example, dict):
        return example, {}
    first = next((n for n in ("input_ids", "pixel_values", "pixels") if n in example), next(iter(example), None))
    extras = {name: x for name, x in example.items() if name != first}
    for name, x in extras.items():
        what = _what_is(x)
        if not isinstance(x, torch.Tensor) or x.dim() < 1:
            raise CannotExport(f'the example\'s "{name}" is {what}; it is a tensor whose first dimension is the batch')
        if x.is_floating_point() or x.is_complex():
            raise CannotExport(f'the example\'s "{name}" is {what}; {_REAL_NUMBERS}')
        if len(x) != len(example[first]):
            raise CannotExport(f'the example\'s "{name}" is {what}, and "{first}" has {len(example[first])} samples')
    return example.get(first), {name: x.to(torch.int64) for name, x in extras.items()}


def _renamed(x, names):
    if isinstance(x, list):
        return [_renamed(y, names) for y in x]
    return names.get(x, x) if isinstance(x, str) else x


def _digest(x):
    return hashlib.sha256(x.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data).hexdigest()


_REAL_NUMBERS = ("the data of samples are whole numbers: give real ones as such, torch.round(x * 1000), and let "
                 "the layer that takes them divide, x.float() / 1000")


def _what_is(x):
    return f"{x.dtype} {list(x.shape)}" if isinstance(x, torch.Tensor) else type(x).__name__


def _input_kind(example):
    what = _what_is(example)
    if isinstance(example, torch.Tensor) and example.is_floating_point() and example.dim() != 4:
        raise CannotExport(f"the example is {what}; {_REAL_NUMBERS}, with vocabulary= as many values as there are")
    if not isinstance(example, torch.Tensor) or example.dtype != torch.int64 or example.dim() not in (2, 4):
        raise CannotExport(f"the example is {what}; it is whole numbers, int64: tokens [batch, sequence], or pixels 0 "
                           "to 255 [batch, channels, height, width], of which parcae_model.Pixels makes real ones "
                           "(pixels=)")
    if example.shape[0] < 2:
        raise CannotExport(f"the example is {what}; of one sample nothing can be told about batches: give two or more")
    if example.dim() == 4 and example.shape[2] != example.shape[3]:
        raise CannotExport(f"the example is {what}; images are as high as wide")
    return "tokens" if example.dim() == 2 else "images"


def _reason(e):
    text = str(e)
    if "data-dependent" in text or "GuardOnDataDependent" in type(e).__name__:
        return "the control flow depends on values; torch.where can often say the same"
    if "Constraints violated" in text or "specialized" in text or "ConstraintViolation" in type(e).__name__:
        return "is fixed to the example's batch; it must work for any number of samples"
    return f"torch.export says: {first_line(e)}"
