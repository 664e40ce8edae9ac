"""What cannot be exported is refused with one line that says which module, where in its source, and why."""

import pathlib
import re
import sys
import tempfile
import unittest

import torch
from torch import nn
from torch.nn import functional as F

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


class NoTensor(Base):
    def forward(self, x):  # HERE
        return 3


class LargerSize(Base):
    def forward(self, x):
        return self.linear(x) / max(x.shape[0], 3)  # HERE


class OtherNoise(Base):
    def forward(self, x):
        return self.linear(F.rrelu(x, training=self.training))  # HERE


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


class Refusals(unittest.TestCase):
    def test_each_with_its_module_and_line(self):
        source = pathlib.Path(__file__).read_text().splitlines()
        for case, why in CASES.items():
            with self.subTest(case.__name__):
                begin = next(i for i, x in enumerate(source) if x.startswith(f"class {case.__name__}("))
                line = next(i for i in range(begin, len(source)) if source[i].endswith("# HERE")) + 1
                text = refusal([nn.Embedding(16, 8), case(), nn.Linear(8, 16)])
                self.assertIsNotNone(text, "was exported")
                self.assertNotIn("\n", text)
                self.assertIn(why, text)
                self.assertRegex(text, rf"^1 \(.*refusals_test\.py:{line}\)", text)

    def test_models_and_examples(self):
        good = lambda: [nn.Embedding(16, 8), nn.Linear(8, 16)]
        shared = nn.Linear(8, 8)
        cases = [
            ((nn.Linear(2, 2),), {}, "neither a list of layers"),
            ((good(), torch.zeros(2, 4)), {}, "whole numbers"),
            ((good(), X[:1]), {}, "two or more"),
            (([nn.Embedding(16, 8), shared, shared, shared, nn.Linear(8, 16)],), {}, "one pair of tied parameters"),
            ((good(),), {"loss": "hinge"}, "not known"),
            (([nn.Embedding(16, 8), nn.Linear(8, 4)],), {}, "cross-entropy of tokens"),
            (([nn.Embedding(16, 8), nn.Linear(8, 16).to(torch.float64)],), {}, "parameters are float32"),
            (([nn.Flatten()],), {}, "no parameter"),
        ]
        for arguments, options, why in cases:
            with self.subTest(why):
                text = refusal(*arguments, **options)
                self.assertIsNotNone(text, "was exported")
                self.assertNotIn("\n", text)
                self.assertIn(why, text)

    def test_the_model_stays_as_it_is(self):
        model = nn.Sequential(nn.Flatten(), nn.Linear(48, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True),
                              nn.Dropout(0.5), nn.Linear(8, 3))
        model[4].eval()
        before = {k: v.clone() for k, v in model.state_dict().items()}
        modes = [(m.training, m.__dict__.get("inplace")) for m in model.modules()]
        random = torch.get_rng_state()
        with tempfile.TemporaryDirectory() as folder:
            parcae_model.export(model, torch.zeros(2, 3, 4, 4, dtype=torch.int64), folder, pixels=parcae_model.Pixels())
        self.assertEqual(modes, [(m.training, m.__dict__.get("inplace")) for m in model.modules()])
        self.assertTrue(torch.equal(random, torch.get_rng_state()))
        for k, v in model.state_dict().items():
            self.assertTrue(torch.equal(before[k], v), k)


if __name__ == "__main__":
    unittest.main()
