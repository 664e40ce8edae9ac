"""What export(serve=True) adds: of each layer a graph for rows, a row being one position of one of the requests that
are answered together. Between positions nothing but attention computes, which is Parcae's there: it keeps keys and
values.
"""

import torch
from torch.nn import functional as F

from .errors import CannotExport, line_of_forward, refuse
from .graph import run_graph
from .layers import names_taken, switched

_ATTENTION = "scaled_dot_product_attention"
_INSTEAD = ("of one position after the other it computes something else than of all at once; between positions of a "
            "model that is served nothing computes but F.scaled_dot_product_attention(q, k, v, is_causal=True), and a "
            "layer that needs to know positions takes them: forward(self, x, positions=None), whole numbers "
            "[batch, 1]")


def require_text(kind, loss, extras, classes):
    if kind != "tokens" or loss != "cross_entropy" or extras or classes is not None:
        raise CannotExport("serve=True is for models of text: of tokens alone, with the cross-entropy of the token "
                           "behind each")


class Rows:
    """A batch, layer by layer: whole, and the same as rows."""

    def __init__(self, example, vocabulary):
        self.samples, self.places = example.shape
        # Not the example itself, which may be all zeros: of tokens that are alike no position makes a difference.
        self.x = torch.randint(vocabulary, example.shape, generator=torch.Generator().manual_seed(0))
        self.positions = torch.arange(self.places).repeat(self.samples).view(-1, 1)
        self.cached = 0

    def inputs(self, layer):
        """Of the layer's graph for rows: its input, and what it takes by name."""
        return self.x.flatten(0, 1).unsqueeze(1), {n: self.positions for n in names_taken(layer.module, ["positions"])}

    def compare(self, layer, graph):
        """The graph with the layer itself, which is the next one. Returns how many values are kept of each position."""
        places = [x["at"] for x in graph["nodes"] if x["op"] == _ATTENTION]
        if len(places) > 1:
            refuse(layer.name, places[1], "has a second attention; a layer that is served has one: give two layers")
        self.cached = 0
        with switched([layer.module], False), torch.no_grad():
            whole = layer.module(self.x)
            tensors = {**layer.tensors(), "%x": self.x.flatten(0, 1).unsqueeze(1), "%t": self.positions}
            rows = run_graph(graph, tensors, lambda *x, **more: self.attention(layer, places[0], *x, **more))
        place = line_of_forward(layer.module)
        if whole.dim() < 3 or whole.shape[1] != self.places:
            refuse(layer.name, place, f"returns {list(whole.shape[1:])} for {self.places} tokens; a layer that is "
                                      "served returns something for each of them")
        if rows.shape != (self.samples * self.places, 1, *whole.shape[2:]):
            refuse(layer.name, place, _INSTEAD)
        rows = rows.view_as(whole)
        if not (rows - whole).abs().max() <= 1e-4 * whole.abs().max():
            refuse(layer.name, place, _INSTEAD)
        self.x = whole
        return self.cached

    def attention(self, layer, place, q, k, v, mask, dropout, is_causal, scale, enable_gqa):
        """Of all rows, as if each found its request's earlier keys and values."""
        if mask is not None:
            refuse(layer.name, place, "gives attention a mask; is_causal=True is what can be served")
        if q.dim() != 4 or k.dim() != 4 or k.shape[-1] != v.shape[-1] or q.shape[1] % k.shape[1]:
            refuse(layer.name, place, f"has queries, keys and values of shapes {[list(x.shape) for x in (q, k, v)]}; "
                                      "known are [batch, heads, positions, size], of one size")
        self.cached = k.shape[1] * (k.shape[3] + v.shape[3])

        def together(x):  # [samples * places, heads, 1, size]
            return x.reshape(self.samples, self.places, x.shape[1], x.shape[3]).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(together(q), together(k), together(v), is_causal=True, scale=scale,
                                               enable_gqa=q.shape[1] != k.shape[1])
        return mixed.transpose(1, 2).reshape(q.shape)
