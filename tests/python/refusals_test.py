"""What cannot be exported is refused with one line that says which module, where in its source, and why; what is
exported is told, too."""

import json
import os
import pathlib
import re
import sys
import tempfile
import types

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import models
import parcae_model

X = torch.zeros(2, 4, dtype=torch.int64)


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)


class ControlFlow(Base):
    def forward(self, x):
        if x.sum() > 0:  # HERE
            return self.linear(x)
        return x


class RandomNoise(Base):
    def forward(self, x):
        return self.linear(x + torch.randn_like(x))  # HERE


class WritesParameter(Base):
    def forward(self, x):
        with torch.no_grad():
            self.linear.bias.add_(1)  # HERE
        return self.linear(x)


class WritesInput(Base):
    def forward(self, x):
        x.mul_(2)  # HERE
        return self.linear(x)


class TwoOutputs(Base):
    def forward(self, x):  # HERE
        return self.linear(x), x


class FixedBatch(Base):
    def forward(self, x):  # HERE
        return self.linear(x).view(2, 4, 8)


class Unlisted(Base):
    def forward(self, x):
        return self.linear(torch.scatter_add(x, 1, torch.zeros_like(x, dtype=torch.int64), x))  # HERE


class Half(Base):
    def forward(self, x):  # HERE
        return self.linear(x).to(torch.bfloat16)


class Unused(Base):
    def __init__(self):
        super().__init__()
        self.other = nn.Linear(8, 8)

    def forward(self, x):  # HERE
        return self.linear(x)


class Fails(Base):
    def forward(self, x):
        return self.linear(x[..., :3])  # HERE


class ToNumpy(Base):
    def forward(self, x):
        return self.linear(x * float(x.detach().max().item()))  # HERE


class ChannelDropout(Base):
    def forward(self, x):
        return self.linear(F.dropout1d(x, 0.5, self.training))  # HERE


class WritesBuffer(Base):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(8))

    def forward(self, x):
        self.seen.add_(x.detach().mean((0, 1)))  # HERE
        return self.linear(x) + self.seen


class Conditional(Base):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda y: self.linear(y), lambda y: y * 1, (x,))  # HERE


class Autocast(Base):
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x).float()  # HERE


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.round()

    @staticmethod
    def backward(context, gradient):
        return gradient


class OwnBackward(Base):
    def forward(self, x):  # HERE
        return StraightThrough.apply(self.linear(x))


class FailsBackward(Base):
    def forward(self, x):  # HERE
        return checkpoint(self.linear, x, use_reentrant=True)


class NoTensor(Base):
    def forward(self, x):  # HERE
        return 3


class LargerSize(Base):
    def forward(self, x):
        return self.linear(x) / max(x.shape[0], 3)  # HERE


class OtherNoise(Base):
    def forward(self, x):
        return self.linear(F.rrelu(x, training=self.training))  # HERE


class Recurrent(nn.Module):
    def __init__(self, kind=nn.GRU):
        super().__init__()
        self.rnn = kind(8, 8, batch_first=True)

    def forward(self, x):
        return self.rnn(x)[0]  # HERE


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(8, 8)

    def forward(self, x):
        return torch.stack([self.cell(y) for y in x.unbind(1)], 1)  # HERE


CASES = {
    ControlFlow: "control flow depends on values",
    RandomNoise: "random operator randn_like",
    WritesParameter: "writes to the parameter linear.bias in place",
    WritesInput: "writes to the layer's input in place",
    TwoOutputs: "returns 2 values",
    FixedBatch: "fixed to the example's batch",
    Unlisted: "scatter_add is not on the list",
    Half: "float32",
    Unused: "does not use its parameter",
    Fails: "fails on the example",
    ToNumpy: "control flow depends on values",
    ChannelDropout: "random operator",
    WritesBuffer: "writes to seen in place",
    Conditional: "cond is not known",
    Autocast: "wrap_with_autocast is not known",
    OwnBackward: "is not that of its operators",
    FailsBackward: "fails on the example, backward: When use_reentrant=True",
    NoTensor: "returns a int, not a tensor",
    LargerSize: "sym_max of sizes is not known",
    OtherNoise: "random operator rrelu",
}


def refusal(model, example=X, **options):
    with tempfile.TemporaryDirectory() as folder:
        try:
            parcae_model.export(model, example, pathlib.Path(folder) / "model", **options)
        except parcae_model.CannotExport as e:
            assert not (pathlib.Path(folder) / "model").exists(), "something was written"
            return str(e)
    return None


# given: a layer that cannot be exported, second of three / expected: one line with the layer, its source line and why;
# nothing is written
@pytest.mark.parametrize("case", CASES, ids=lambda x: x.__name__)
def test_each_with_its_module_and_line(case):
    source = pathlib.Path(__file__).read_text().splitlines()
    begin = next(i for i, x in enumerate(source) if x.startswith(f"class {case.__name__}("))
    line = next(i for i in range(begin, len(source)) if source[i].endswith("# HERE")) + 1
    text = refusal([nn.Embedding(16, 8), case(), nn.Linear(8, 16)])
    assert text is not None, "was exported"
    assert "\n" not in text
    assert CASES[case] in text
    assert re.match(rf"1 \(.*refusals_test\.py:{line}\)", text), text


class Within(nn.Module):
    """One that cannot be exported, deep in a layer."""

    def __init__(self, case):
        super().__init__()
        self.parts = nn.ModuleDict({"good": nn.Linear(8, 8), "bad": nn.Sequential(nn.Linear(8, 8), case())})

    def forward(self, x):
        return self.parts["bad"](self.parts["good"](x))


# given: the same within a layer's modules, of what a node or an exception is about / expected: the path of the module
# that is in the way, also as the model calls it whose layers they are
@pytest.mark.parametrize("case", [ControlFlow, RandomNoise, Unlisted, Fails, ToNumpy, ChannelDropout, WritesBuffer,
                                  Conditional, LargerSize, OtherNoise], ids=lambda x: x.__name__)
def test_path_of_the_inner_module(case):
    text = refusal([nn.Embedding(16, 8), Within(case), nn.Linear(8, 16)])
    assert text is not None, "was exported"
    assert re.match(r"1\.parts\.bad\.1 \(.*refusals_test\.py:\d+\): ", text), text
    model = nn.ModuleDict({"first": nn.Embedding(16, 8), "blocks": nn.ModuleList([Within(case)]),
                           "head": nn.Linear(8, 16)})
    text = refusal([model["first"], model["blocks"][0], model["head"]], names_from=model)
    assert re.match(r"blocks\.0\.parts\.bad\.1 \(.*refusals_test\.py:\d+\): ", text), text


# given: a module of PyTorch's own, which no line of the user's calls / expected: that module's path and line
def test_line_of_a_module_of_pytorch():
    text = refusal([nn.Embedding(16, 8), nn.Sequential(nn.Linear(8, 8), nn.AlphaDropout(0.5)), nn.Linear(8, 16)])
    assert re.match(r"1\.1 \(.*dropout\.py:\d+\): the random operator alpha_dropout", text), text


SHARED = nn.Linear(8, 8)
GOOD = [nn.Embedding(16, 8), nn.Linear(8, 16)]
MODELS = [
    ((nn.Linear(2, 2),), {}, "Linear: is neither a list of layers"),
    ((GOOD, torch.zeros(2, 4)), {}, "give real ones as such"),
    ((GOOD, torch.zeros(2, 3, 4, 4)), {}, "parcae_model.Pixels makes real ones"),
    ((GOOD, {"input_ids": X, "dense": torch.zeros(2, 4)}), {},
     '"dense" is torch.float32 [2, 4]; the data of samples are'),
    ((GOOD, {"input_ids": X, "dense": X[:1]}), {}, '"input_ids" has 2 samples'),
    ((GOOD, {"input_ids": X, "dense": 3}), {}, '"dense" is int; it is a tensor'),
    (([nn.EmbeddingBag(16, 8), nn.Linear(8, 3)],), {}, "EmbeddingBag is not known: nn.Embedding(...)(x).mean(1)"),
    ((GOOD, X[:1]), {}, "two or more"),
    ((GOOD, {"input_ids": X, "attention_mask": X}), {}, 'no layer takes "attention_mask"'),
    (([nn.Embedding(16, 8), SHARED, SHARED, SHARED, nn.Linear(8, 16)],), {}, "one pair of tied parameters"),
    ((GOOD,), {"loss": "hinge"}, "not known"),
    (([nn.Embedding(16, 8), nn.Linear(8, 4)],), {}, "cross-entropy of tokens"),
    (([nn.Embedding(16, 8), nn.Linear(8, 16).to(torch.float64)],), {}, "parameters are float32"),
    (([nn.Flatten()],), {}, "no parameter"),
]


# given: a model, an example or an option that does not fit / expected: one line that says what
@pytest.mark.parametrize("arguments, options, why", MODELS, ids=[x[2] for x in MODELS])
def test_models_and_examples(arguments, options, why):
    text = refusal(*arguments, **options)
    assert text is not None, "was exported"
    assert "\n" not in text
    assert why in text


class Positions(Base):
    """Adds something of each position, and does not take it."""
    def forward(self, x):  # HERE
        return self.linear(x) + torch.arange(x.shape[1]).view(1, -1, 1) / 8


class Future(Base):
    def forward(self, x):  # HERE
        q = self.linear(x).unflatten(-1, (2, 4)).transpose(1, 2)
        return F.scaled_dot_product_attention(q, q, q).transpose(1, 2).flatten(-2)


class Masked(Base):
    def forward(self, x):
        q = self.linear(x).unflatten(-1, (2, 4)).transpose(1, 2)
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        return F.scaled_dot_product_attention(q, q, q, mask).transpose(1, 2).flatten(-2)  # HERE


class Twice(Base):
    def forward(self, x):
        q = self.linear(x).unflatten(-1, (2, 4)).transpose(1, 2)
        q = F.scaled_dot_product_attention(q, q, q, is_causal=True)
        return F.scaled_dot_product_attention(q, q, q, is_causal=True).transpose(1, 2).flatten(-2)  # HERE


class Shorter(Base):
    def forward(self, x):  # HERE
        return self.linear(x).mean(1)


class Lookback(Base):
    def forward(self, x):  # HERE
        return self.linear(x) + F.pad(x, (0, 0, 1, 0))[:, :-1]


SERVED = {
    Positions: "forward(self, x, positions=None)",
    Future: "is_causal=True",
    Masked: "gives attention a mask",
    Twice: "has a second attention",
    Lookback: "of one position after the other it computes something else",
}


# given: a layer that can be trained, and not served / expected: exported without serve, and with it one line with the
# layer, its source line and why
@pytest.mark.parametrize("case", SERVED, ids=lambda x: x.__name__)
def test_what_cannot_be_served(case):
    source = pathlib.Path(__file__).read_text().splitlines()
    begin = next(i for i, x in enumerate(source) if x.startswith(f"class {case.__name__}("))
    line = next(i for i in range(begin, len(source)) if source[i].endswith("# HERE")) + 1
    layers = [nn.Embedding(16, 8), case(), nn.Linear(8, 16)]
    assert refusal(layers) is None
    text = refusal(layers, serve=True)
    assert text is not None, "was exported"
    assert "\n" not in text
    assert SERVED[case] in text
    assert re.match(rf"1 \(.*refusals_test\.py:{line}\)", text), text


# given: models that are not of text token by token / expected: one line
@pytest.mark.parametrize("arguments, options, why", [
    (([nn.Embedding(16, 8), Shorter(), nn.Linear(8, 3)],), {}, "returns something for each of them"),
    (([nn.Conv2d(3, 4, 1), nn.Flatten(), nn.Linear(64, 3)], torch.zeros(2, 3, 4, 4, dtype=torch.int64)),
     {"pixels": parcae_model.Pixels()}, "for models of text"),
    ((models.bert(), models.tokens(300, 16)), {"mask_token": 299}, "computes something else"),
], ids=["labels", "images", "both ways"])
def test_models_that_cannot_be_served(arguments, options, why):
    text = refusal(*arguments, serve=True, **options)
    assert text is not None and "\n" not in text and why in text, text


class Rotated(Base):
    """Attention to the positions before, which this one turns by."""
    def forward(self, x, positions=None):
        if positions is None:
            positions = torch.arange(x.shape[1]).unsqueeze(0)
        x = self.linear(x) * torch.cos(positions.unsqueeze(-1) / 4)
        q, k = (y.unflatten(-1, (-1, 2)).transpose(1, 2) for y in (x, x[..., :4]))
        mixed = F.scaled_dot_product_attention(q, k, k, is_causal=True, scale=0.5, enable_gqa=True)
        return mixed.transpose(1, 2).flatten(-2)


# given: a user's layer that takes positions, with grouped queries / expected: it says what it keeps of each position
def test_layers_of_ones_own_are_served(tmp_path):
    said = parcae_model.export([nn.Embedding(16, 8), Rotated(), nn.Linear(8, 16)], X, tmp_path, serve=True)
    assert [x["cached_values"] for x in said["layers"]] == [0, 8, 0]
    assert all(set(x) == {"train", "eval", "serve"} for x in said["graphs"])


# given: recurrent layers without dropout, of a module and a cell / expected: the module, what is not known, and what to
# write; nothing of random numbers
@pytest.mark.parametrize("layer", [Recurrent(), Recurrent(nn.LSTM), Recurrent(nn.RNN), Cell()],
                         ids=["gru", "lstm", "rnn", "cell"])
def test_recurrent_layers(layer):
    text = refusal([nn.Embedding(16, 8), layer, nn.Linear(8, 16)])
    assert re.match(r"1\.(rnn|cell) \(.*refusals_test\.py:\d+\): recurrent layers and cells are not known: write their "
                    r"steps out, with nn\.Linear, torch\.sigmoid and torch\.tanh", text), text


class Transposed(Base):
    def forward(self, x):
        return x @ self.linear.weight.T + x @ x.mT @ x + self.linear(x)


# given: a matrix and several, transposed by attribute / expected: exported, as what it is
def test_transposed_by_attribute(tmp_path):
    said = parcae_model.export([nn.Embedding(16, 8), Transposed(), nn.Linear(8, 16)], X, tmp_path)
    made = [x["args"][1] for x in said["graphs"][1]["train"]["nodes"] if x["op"] == "permute"]
    assert made == [[1, 0], [0, 2, 1]]


TOKENS = torch.zeros(2, 8, dtype=torch.int64)
BEYOND_ITS_LAYERS = {
    "attention of its own": (lambda: models.llama(attn_implementation="eager"), "LlamaForCausalLM"),
    "windows": (lambda: models.qwen2(use_sliding_window=True, sliding_window=4, max_window_layers=0),
                "Qwen2ForCausalLM"),
}


# given: models of Hugging Face whose masks are not those of the wrappers, an example of zeros / expected: refused; not
# where the window is as long as the sequence
@pytest.mark.parametrize("build, name", BEYOND_ITS_LAYERS.values(), ids=BEYOND_ITS_LAYERS)
def test_layers_are_the_whole_model(build, name):
    text = refusal(build(), TOKENS)
    assert text is not None, "was exported"
    assert re.match(rf"{name} \(.*\.py:\d+\): its layers, one after the other, do not compute what the model", text)
    if name == "Qwen2ForCausalLM":
        assert refusal(build(), TOKENS[:, :4]) is None


# given: a model of Hugging Face, images of another size than its own / expected: refused, with the line that noticed
def test_example_of_another_size():
    text = refusal(models.vit(), models.pixels(16), pixels=parcae_model.Pixels())
    assert re.match(r"ViTForImageClassification \(.*modeling_vit\.py:\d+\): fails on the example: Input image", text)


class Scaled(Base):
    """Of another temperature and another dropout than the next, which its text does not say."""

    def __init__(self, scale, dropout):
        super().__init__()
        self.scale, self.dropout = scale, dropout

    def forward(self, x):
        mixed = F.softmax(self.scale * x @ x.transpose(1, 2), -1) @ x
        return F.dropout(self.linear(mixed), self.dropout, self.training)


# given: layers that differ in what they compute at other places, or only as they train; an example of zeros / expected:
# only those that are alike share graphs
def test_who_shares_graphs(tmp_path):
    blocks = [Scaled(*x) for x in ((1, 0.5), (2, 0.5), (1, 0.25), (1, 0.5))]
    said = parcae_model.export([nn.Embedding(16, 8), *blocks, nn.Linear(8, 16)], X, tmp_path)
    graphs = [x["graph"] for x in said["layers"]]
    assert graphs == [0, 1, 2, 3, 1, 4]


# given: a model with statistics, dropout and an activation in place, partly in evaluation / expected: export changes
# nothing of it, nor of the generator of random numbers
def test_the_model_stays_as_it_is(tmp_path):
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Dropout(0.5),
                          nn.Linear(8, 3))
    model[4].eval()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    modes = [(m.training, m.__dict__.get("inplace")) for m in model.modules()]
    random = torch.get_rng_state()
    parcae_model.export(model, torch.zeros(2, 3, 4, 4, dtype=torch.int64), tmp_path, pixels=parcae_model.Pixels())
    assert modes == [(m.training, m.__dict__.get("inplace")) for m in model.modules()]
    assert torch.equal(random, torch.get_rng_state())
    for k, v in model.state_dict().items():
        assert torch.equal(before[k], v), k


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.norm, self.head = nn.Embedding(256, 8), nn.LayerNorm(8), nn.Linear(8, 256)
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))


# given: the lines of the README, a module of one's own, a usual umask / expected: they run; what was written is told,
# and is for others to read, as nodes of another user do
def test_the_readme_exports_a_module_of_ones_own(tmp_path, capsys, monkeypatch):
    readme = (pathlib.Path(__file__).resolve().parents[2] / "README.md").read_text()
    lines = next(x for x in re.findall(r"<<'END'\n(.*?)\nEND\n", readme, re.S) if "names_from=m" in x)
    monkeypatch.setitem(sys.modules, "mine", types.SimpleNamespace(Model=Model))

    def save_for_oneself(tensors, path, **options):  # as some versions of safetensors do
        save_file(tensors, path, **options)
        path.chmod(0o600)

    monkeypatch.setattr(sys.modules["parcae_model.export"], "save_file", save_for_oneself)
    before = os.umask(0o022)
    try:
        exec(lines.replace('"/tmp/mine"', repr(str(tmp_path))), {})
    finally:
        os.umask(before)
    said = json.loads((tmp_path / "model.json").read_text())
    assert [x["name"] for x in said["layers"]] == ["emb", "blocks.0", "blocks.1", "norm", "head"]
    assert {x.name: oct(x.stat().st_mode & 0o777) for x in tmp_path.iterdir()} == {
        "model.json": "0o644", "weights.safetensors": "0o644"}
    told = capsys.readouterr().err
    assert f"{tmp_path}: 5 layers, 4,512 parameters, 0.0 MB\n" in told
    assert f'next: [model] kind = "exported", path = "{tmp_path}" in a job file' in told
    assert "parcae submit" in told
