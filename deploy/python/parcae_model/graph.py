"""An ExportedProgram of one layer as a small graph of plain values.

A graph is {"nodes": [{"op", "args", "at"}], "output"}. An operator's arguments are all there, in the schema's order,
defaults filled in. References: "%x" the layer's input, "%y" the targets, "%t" positions of rows, "%s0" another input of
the sample, "%p3" a parameter, "%b0" a running statistic, "%c1" a constant, "%7" the result of node 7. Real numbers are
strings ("1e-05", "-inf"): so no JSON library rounds them.
Nothing of it is code.
"""

import operator

import torch

from .errors import line_in, refuse
from .operators import allowed, name_of

_INTEGERS = {operator.add: "int.add", operator.sub: "int.sub", operator.mul: "int.mul",
             operator.floordiv: "int.floordiv"}
_ASSERTIONS = ("_assert", "sym_constrain_range")
# Of operators that are not allowed: what cannot be done, and what says the same.
_STEPS = ("recurrent layers and cells are not known: write their steps out, with nn.Linear, torch.sigmoid and "
          "torch.tanh for each of x.unbind(1)")
_BAGS = "EmbeddingBag is not known: nn.Embedding(...)(x).mean(1), or .sum(1) or .amax(1), says the same"
_INSTEAD = {**dict.fromkeys(("gru", "lstm", "rnn_tanh", "rnn_relu", "gru_cell", "lstm_cell", "rnn_tanh_cell",
                             "rnn_relu_cell"), _STEPS),
            "embedding_bag": _BAGS, "_embedding_bag": _BAGS}
_SAME = {"__and__.Tensor": "bitwise_and.Tensor", "__or__.Tensor": "bitwise_or.Tensor"}


class Slots:
    """Which parameter, running statistic or constant a name of a layer's module stands for, and what its inputs are."""

    def __init__(self, references, inputs):
        self.references = references  # by name in the module: "%p0"
        self.inputs = inputs          # "%x" and so on, in the order of the call
        self.names = {reference: name for name, reference in reversed(references.items())}


class _Writer:
    def __init__(self, program, slots, paths, training):
        self.program, self.slots, self.paths, self.training = program, slots, paths, training
        self.nodes = []
        self.values = {}     # of an fx node: a reference, or a list of them
        self.foreign = {}    # references that are not the graph's own to write to: what they are
        self.inputs = iter(slots.inputs)

    def place(self, node):
        """Of a node with a graph of its own, where that begins."""
        found = line_in(node.meta.get("stack_trace"))
        parts = [x.target for x in node.args if isinstance(x, torch.fx.Node) and x.op == "get_attr"]
        for part in parts if not found else ():
            inner = getattr(node.graph.owning_module, part)
            found = found or next(filter(None, map(self.place, getattr(inner, "graph", node.graph).nodes)), "")
        return found

    def refuse(self, node, why):
        refuse(self.paths.of(node), self.place(node) or self.paths.line(node), why)

    # --- arguments

    def value(self, node, x, kind):
        if isinstance(x, torch.fx.Node):
            return self.values[x]
        if isinstance(x, (list, tuple)):
            return [self.value(node, y, kind) for y in x]
        if x is None:
            return None
        if isinstance(x, torch.layout):
            return None if x == torch.strided else self.refuse(node, f"makes a tensor of layout {x}; dense are known")
        if isinstance(x, torch.device):
            # Where the layer computes is not the exporter's to say.
            return "cpu" if x.type == "cpu" else self.refuse(node, f"names the device {x}; move the model to the CPU")
        if isinstance(x, (torch.dtype, torch.memory_format)):
            return str(x).removeprefix("torch.")
        if isinstance(x, bool):
            return x
        if isinstance(x, float) or kind == "float":
            return repr(float(x))
        if isinstance(x, (int, str)):
            return x
        return self.refuse(node, f"has an argument of type {type(x).__name__}")

    def arguments(self, node, schema):
        result = []
        for i, argument in enumerate(schema.arguments):
            kind = str(argument.type).removeprefix("Optional[").rstrip("]")
            if i < len(node.args):
                x = node.args[i]
            elif argument.name in node.kwargs:
                x = node.kwargs[argument.name]
            else:
                x = argument.default_value
                if argument.name == "memory_format" and isinstance(x, int):
                    x = (torch.contiguous_format, torch.preserve_format)[x]
            x = self.value(node, x, kind)
            if kind == "List[int" and not isinstance(x, list) and x is not None:
                x = [x] * (argument.N or 1)
            result.append(x)
        return result

    # --- nodes

    def emit(self, node, name, arguments, no_grad):
        entry = {"op": name, "args": arguments, "at": self.place(node)}
        if no_grad:
            entry["no_grad"] = True
        self.nodes.append(entry)
        return f"%{len(self.nodes) - 1}"

    def call(self, node, no_grad):
        target = node.target
        if isinstance(target, torch._ops.HigherOrderOperator):
            return self.inline(node, no_grad)
        if target is operator.getitem:
            source, index = node.args
            if isinstance(self.values[source], list):
                self.values[node] = self.values[source][index]
            else:
                self.values[node] = self.emit(node, "item", [self.values[source], index], no_grad)
                self.inherit(self.values[node], self.values[source])
            return None
        if target in _INTEGERS:
            numbers = [self.value(node, x, "int") for x in node.args]
            self.values[node] = self.emit(node, _INTEGERS[target], numbers, no_grad)
            return None
        if not isinstance(target, torch._ops.OpOverload):
            if not node.users or all(self.is_assertion(x) for x in node.users):
                return None  # only compared, for an assertion
            return self.refuse(node, f"{getattr(target, '__name__', target)} of sizes is not known")
        return self.operator(node, target, no_grad)

    @staticmethod
    def is_assertion(node):
        return any(str(getattr(node.target, "__name__", "")).startswith(x) for x in _ASSERTIONS)

    def operator(self, node, target, no_grad):
        name = _SAME.get(name_of(target), name_of(target))
        if any(name.startswith(x) for x in _ASSERTIONS):
            return
        arguments = self.arguments(node, target._schema)
        if name == "sym_size.int":
            self.values[node] = self.emit(node, "size", arguments, no_grad)
            return
        if name in ("dropout", "dropout_") and (not arguments[2] or float(arguments[1]) == 0):
            self.values[node] = arguments[0]
            return
        if name == "add_.Tensor" and self.slots.names.get(arguments[0], "").endswith("num_batches_tracked"):
            return  # nothing uses it
        if name in ("numpy_T", "mT"):
            order = list(range(node.meta["val"].dim()))
            order = order[::-1] if name == "numpy_T" else order[:-2] + order[:-3:-1]
            name, arguments, target = "permute", [arguments[0], order], torch.ops.aten.permute.default
        if name not in allowed():
            instead = _BAGS if isinstance(self.paths.module(node), torch.nn.EmbeddingBag) else None
            if instead := instead or _INSTEAD.get(name.split(".")[0]):
                self.refuse(node, instead)
            if torch.Tag.nondeterministic_seeded in target.tags:
                self.refuse(node, f"the random operator {name} draws from PyTorch's own generator; of random ones only "
                                  "dropout and attention's dropout are known")
            self.refuse(node, f"the operator {name} is not on the list of those known to give the same bits every time")
        if name == "dropout_":
            name = "dropout"
        result = self.emit(node, name, arguments, no_grad)
        self.values[node] = result
        for argument, x in zip(target._schema.arguments, arguments):
            if not argument.alias_info or not isinstance(x, str):
                continue
            if argument.alias_info.is_write and x in self.foreign:
                self.refuse(node, f"{name} writes to {self.foreign[x]} in place")
            self.inherit(result, x)

    def inherit(self, result, source):
        if isinstance(source, str) and source in self.foreign:
            self.foreign[result] = self.foreign[source]

    def inline(self, node, no_grad):
        """A part under `with torch.no_grad()` or under autocast that is switched off."""
        name = str(getattr(node.target, "_name", node.target))
        if name == "wrap_with_set_grad_enabled":
            enabled, part, *operands = node.args
            no_grad = no_grad or not enabled
        elif name == "wrap_with_autocast" and not node.args[2]:
            part, *operands = node.args[4:]
        else:
            return self.refuse(node, f"{name} is not known: control flow on data, autocast and custom functions cannot "
                                     "be exported")
        graph = getattr(node.graph.owning_module, part.target).graph
        operands = iter(operands)
        for inner in graph.nodes:
            if inner.op == "placeholder":
                self.values[inner] = self.values[next(operands)]
            elif inner.op == "output":
                self.values[node] = [self.values[x] if isinstance(x, torch.fx.Node) else x for x in inner.args[0]]
            elif inner.op == "call_function":
                self.call(inner, no_grad)

    def placeholder(self, node, spec):
        kind = spec.kind.name
        if kind == "USER_INPUT":
            reference = next(self.inputs)
            self.foreign[reference] = {"%x": "the layer's input", "%y": "the targets", "%t": "the positions"}.get(
                reference, "an input of the sample")
        else:
            reference = self.slots.references.get(spec.target)
            if reference is None:
                self.refuse(node, f"{spec.target} is neither a parameter nor a buffer of the layer")
            self.foreign[reference] = f"{'the parameter ' if reference[1] == 'p' else ''}{spec.target}"
        self.values[node] = reference

    def write(self):
        specs = iter(self.program.graph_signature.input_specs)
        output = None
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                self.placeholder(node, next(specs))
            elif node.op == "call_function":
                self.call(node, False)
            elif node.op == "output":
                kinds = [x.kind.name for x in self.program.graph_signature.output_specs]
                for x, kind in zip(node.args[0], kinds):
                    if kind == "USER_OUTPUT":
                        output = self.values[x]
        return _without_unused({"nodes": self.nodes, "output": output})


def references_in(x):
    if isinstance(x, list):
        for y in x:
            yield from references_in(y)
    elif isinstance(x, str) and x.startswith("%"):
        yield x


def _without_unused(graph):
    """Drops what nothing uses, and numbers the rest anew."""
    nodes, used = graph["nodes"], {graph["output"]}
    keep = [False] * len(nodes)
    for i in reversed(range(len(nodes))):
        node = nodes[i]
        # What writes in place is kept with what it writes to; that this is the graph's own was seen before.
        keep[i] = f"%{i}" in used or node["op"].split(".")[0].endswith("_")
        if keep[i]:
            used.update(references_in(node["args"]))
    numbers = {}
    for i, kept in enumerate(keep):
        if kept:
            numbers[f"%{i}"] = f"%{len(numbers)}"

    def renamed(x):
        if isinstance(x, list):
            return [renamed(y) for y in x]
        return numbers.get(x, x) if isinstance(x, str) else x

    kept = [{**x, "args": renamed(x["args"])} for x, k in zip(nodes, keep) if k]
    return {"nodes": kept, "output": renamed(graph["output"])}


def write_graph(program, slots, paths, training):
    """The graph of an ExportedProgram; paths.of(node) is what its module is called, .line(node) where that is. Raises
    CannotExport."""
    return _Writer(program, slots, paths, training).write()


def run_graph(graph, tensors, attention=None):
    """What the graph computes, by PyTorch; to compare with the module. tensors: all that it refers to, by reference.
    attention: what is called in the place of that operator."""
    values = dict(tensors)

    def value(a, kind):
        if isinstance(a, list):
            return [value(b, kind) for b in a]
        if isinstance(a, str):
            if a.startswith("%"):
                return values[a]
            if kind in ("ScalarType", "MemoryFormat", "Layout") or hasattr(torch, a) and isinstance(
                    getattr(torch, a), (torch.dtype, torch.memory_format)):
                return getattr(torch, a)
            if kind == "str" or a == "cpu":
                return a
            return float(a)
        return a

    integers = {name: function for function, name in _INTEGERS.items()}
    for i, node in enumerate(graph["nodes"]):
        name, arguments = node["op"], node["args"]
        if name == "item":
            result = values[arguments[0]][arguments[1]]
        elif name == "size":
            result = values[arguments[0]].size(arguments[1])
        elif name in integers:
            result = integers[name](*(value(a, "int") for a in arguments))
        else:
            base, _, overload = name.partition(".")
            function = getattr(getattr(torch.ops.aten, base), overload or "default")
            positional, named = [], {}
            for argument, a in zip(function._schema.arguments, arguments):
                a = value(a, str(argument.type).removeprefix("Optional[").rstrip("]"))
                if argument.kwarg_only:
                    named[argument.name] = a
                else:
                    positional.append(a)
            if attention and name == "scaled_dot_product_attention":
                function = attention
            with torch.set_grad_enabled(torch.is_grad_enabled() and not node.get("no_grad", False)):
                result = function(*positional, **named)
        values[f"%{i}"] = result
    return values[graph["output"]]
