"""How much a layer computes and keeps; for the planner, which corrects it by what it measures."""

import torch

from .errors import quiet
from .layers import switched


def flop_of(module, inputs, extras):
    """Floating-point operations of a forward pass: products and convolutions."""
    with quiet():  # it says that there is no Triton
        from torch.utils.flop_counter import FlopCounterMode
    with switched([module], False), torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(*inputs, **extras)
    return float(counter.get_total_flops())


def activations_of(layer, inputs, extras):
    """float32 values that a forward pass keeps for the backward pass: with the output, without input and parameters."""
    kept = {}

    def keep(x):
        if isinstance(x, torch.Tensor) and x.device.type == "cpu":
            kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    x = inputs[0].detach().requires_grad_() if inputs[0].is_floating_point() else inputs[0]
    buffers = [(b, b.clone()) for b in layer.module.buffers()]
    with switched([layer.module], True), torch.autograd.graph.saved_tensors_hooks(keep, lambda y: y):
        output = layer.module(x, *inputs[1:], **extras)
    for buffer, before in buffers:  # running statistics
        with torch.no_grad():
            buffer.copy_(before)
    keep(output)
    for stored in (x, *extras.values(), *layer.module.parameters(), *layer.module.buffers()):
        kept.pop(stored.untyped_storage().data_ptr(), None)
    # Dropout's masks are bytes here and numbers in training.
    dropped = sum(isinstance(m, torch.nn.Dropout) and m.p > 0 for m in layer.module.modules())
    return sum(kept.values()) / 4 + dropped * output.numel()
