"""GPT-2 in plain PyTorch, as one writes it: autocast to bfloat16, flash attention, clipping, fused AdamW. What
speed.py compares with. Prints one JSON object a line: what it computes on, and then

* without --checkpoint: the mean of --steps, ms: what all of them took, as training_bench has it;
* with it: each step when it is done. The state is read from that file if it is there; else written once, at --save-at.
"""

import argparse
import contextlib
import json
import os
import pathlib
import time

import torch
from torch import nn
from torch.nn import attention
from torch.nn import functional as F

# layers, width, heads, sequence, vocabulary: as in tests/bench/bench_jobs.hpp
SIZES = {"gpt2": (12, 768, 12, 1024, 50257), "tiny": (2, 64, 2, 32, 512)}
WARM_STEPS = 3


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm, self.inner_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.mixed = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        samples, length, width = x.shape
        q, k, v = (y.view(samples, length, self.heads, -1).transpose(1, 2)
                   for y in self.qkv(self.norm(x)).split(width, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(samples, length, width)
        x = x + self.mixed(y)
        return x + self.outer(F.gelu(self.inner(self.inner_norm(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, layers, width, heads, sequence, vocabulary):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(sequence, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        for x in self.parameters():
            if x.dim() == 2:
                nn.init.normal_(x, std=0.02)

    def forward(self, x, targets):
        y = self.tokens(x) + self.positions.weight[:x.shape[1]]
        logits = self.head(self.norm(self.blocks(y)))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Loop:
    def __init__(self, args):
        self.args, self.device = args, torch.device(args.device)
        torch.manual_seed(1)
        *_, self.sequence, self.vocabulary = sizes = SIZES[args.model]
        self.model = GPT2(*sizes).to(self.device)
        self.run = torch.compile(self.model) if args.compile else self.model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, weight_decay=0, fused=True)
        self.steps = 0

    def samples(self):
        shape = (self.args.micro_batch, self.sequence + 1)
        x = torch.randint(self.vocabulary, shape, pin_memory=self.device.type == "cuda")
        x = x.to(self.device, non_blocking=True)
        return x[:, :-1], x[:, 1:]

    def flash(self):
        if self.device.type != "cuda":
            return contextlib.nullcontext()
        return attention.sdpa_kernel(attention.SDPBackend.FLASH_ATTENTION)

    def step(self):
        micro_batches = self.args.batch // self.args.micro_batch
        for _ in range(micro_batches):
            with self.flash(), torch.autocast(self.device.type, torch.bfloat16):
                loss = self.run(*self.samples())
            (loss / micro_batches).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.steps += 1
        return loss.item()  # waits for the device

    def load(self, file):
        state = torch.load(file, map_location=self.device)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.steps = state["steps"]

    def save(self, file):
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "steps": self.steps}
        torch.save(state, f"{file}.new")
        os.replace(f"{file}.new", file)


def say(**what):
    print(json.dumps(what), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--model", choices=SIZES, default="gpt2")
    parser.add_argument("--batch", type=int, default=64, help="samples a step")
    parser.add_argument("--micro-batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--checkpoint", type=pathlib.Path)
    parser.add_argument("--save-at", type=int, default=3, help="step")
    args = parser.parse_args()
    on_gpu = args.device.startswith("cuda")
    if not on_gpu:
        torch.set_num_threads(1)
    properties = torch.cuda.get_device_properties(args.device) if on_gpu else None
    say(device=properties.name if on_gpu else "cpu", bytes=properties.total_memory if on_gpu else 0,
        torch=torch.__version__)
    loop = Loop(args)
    if not args.checkpoint:
        for _ in range(WARM_STEPS):
            loop.step()
        began = time.monotonic()
        for _ in range(args.steps):
            loop.step()
        say(step_ms=1e3 * (time.monotonic() - began) / args.steps)
        return
    if args.checkpoint.exists():
        loop.load(args.checkpoint)
    while True:
        loop.step()
        say(step=loop.steps)
        if loop.steps == args.save_at and not args.checkpoint.exists():
            loop.save(args.checkpoint)


if __name__ == "__main__":
    main()
