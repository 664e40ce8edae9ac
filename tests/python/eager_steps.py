"""Steps of the twin for the bench (export_models.py) in eager PyTorch, as tests/bench/exported_bench.cpp trains it:
prints the median wall time and the mean processor time of one, in ms.

eager_steps.py STEPS
"""

import statistics
import sys
import time

import models
import torch
from torch.nn import functional as F


def main(steps):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = models.Twin(4, 256, 8, 128, 512)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0, fused=True)
    text = torch.frombuffer(bytearray(open("/usr/share/common-licenses/GPL-3", "rb").read()), dtype=torch.uint8).long()
    walls, cpu = [], 0.0
    for step in range(steps + 1):  # the first warms up
        if step == 1:
            cpu = time.process_time()
        began = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        for micro_batch in range(4):
            places = [(step * 16 + micro_batch * 4 + i) % (len(text) // 128 - 1) * 128 for i in range(4)]
            x = torch.stack([text[p:p + 128] for p in places])
            y = torch.stack([text[p + 1:p + 129] for p in places])
            loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten()) / 4
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        walls.append(1e3 * (time.perf_counter() - began))
    print(statistics.median(walls[1:]), 1e3 * (time.process_time() - cpu) / steps)


if __name__ == "__main__":
    main(int(sys.argv[1]))
