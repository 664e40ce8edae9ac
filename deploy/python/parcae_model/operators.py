"""The operators that a graph may have: operators.txt, which the C++ side reads too."""

import functools
import pathlib


@functools.cache
def allowed():
    """Names such as "add.Tensor" and "linear"."""
    text = pathlib.Path(__file__).with_name("operators.txt").read_text()
    return frozenset(x.split("(")[0] for x in text.splitlines() if x and not x.startswith("#"))


def name_of(overload):
    """aten.linear.default is "linear", aten.add.Tensor is "add.Tensor"; another library's keeps its name."""
    space, base = overload.name().split("::")[0], overload.name().split("::")[1]
    return base if space == "aten" else overload.name()
