"""Exports the tests' models into a folder, each with what PyTorch itself computes for one batch: reference.json has the
loss's bits and the digest of every gradient, reference.safetensors the batch. Of models of Hugging Face the same with
other weights, which are in pretrained. Of those that can be served served.json has prompts with the likeliest tokens.

export_models.py FOLDER [NAME...]
"""

import hashlib
import importlib.util
import json
import pathlib
import struct
import sys
import time

import models
import torch
from safetensors.torch import save_file
from torch.nn import functional as F

import parcae_model


def digest(x):
    return hashlib.sha256(x.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data).hexdigest()


def cross_entropy(output, targets):
    return F.cross_entropy(output.reshape(-1, output.shape[-1]), targets.reshape(-1))


def chain(layers):
    def run(x, *last):
        for layer in layers[:-1]:
            x = layer(x)
        return layers[-1](x, *last)
    return run


def of_tokens(model, sequence, vocabulary, **options):
    x = models.tokens(vocabulary, sequence)
    targets = models.tokens(vocabulary, sequence).flip(0)
    return dict(model=model, forward=lambda x: model(x).logits, x=x, targets=targets, **options)


def of_images(model, forward, image=32, **options):
    half = parcae_model.Pixels()
    return dict(model=model, forward=lambda x: forward(half(x)), x=models.pixels(image),
                targets=torch.tensor([[3], [7]]), pixels=half, **options)


def gpt2_small():
    return of_tokens(models.gpt2(n_layer=12, n_head=12, n_embd=768, n_positions=1024, vocab_size=50257), 32, 50257)


def classifier():
    model = models.classifier()
    return dict(model=model, forward=lambda x: model(**x).logits, x=models.masked_inputs(2),
                targets=torch.tensor([[1], [4]]))


def resnet18(model=None):
    model = model or models.ResNet18()
    for x in model.modules():  # as if it had trained before: statistics of version 0 count, too
        if isinstance(x, torch.nn.BatchNorm2d):
            x.running_mean.normal_()
            x.running_var.uniform_(0.5, 1.5)
    return of_images(models.ResNet18.layers(model), model, names_from=model, root=model)


def torchvision_resnet18():
    import torchvision  # takes seconds
    return resnet18(torchvision.models.resnet18(num_classes=10))


def mixer():
    model = models.mixer()
    return of_images(model, model)


def vit():
    model = models.vit()
    return of_images(model, lambda x: model(pixel_values=x).logits)


def twin():
    model = models.Twin(3, 32, 4, 16, 256)
    return of_tokens(model.layers(), 16, 256, names_from=model, root=model) | {"forward": model}


def teaching():
    layers = models.teaching()
    x, targets = models.tokens(64, 12), models.tokens(64, 12).flip(0)
    return dict(model=layers, forward=chain(layers), x=x, targets=targets, loss="in_last_layer")


def regression():
    layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 16), torch.nn.Tanh(),
                                 torch.nn.Linear(16, 1))
    return of_images(layers, layers, image=8, loss="mean_squared_error", classes=10)


FAR = {"initializer_range": 0.3}  # with that of a model that learns all positions are attended to alike
MODELS = {
    "gpt2_small": gpt2_small,
    "gpt2": lambda: of_tokens(models.gpt2(**FAR), 16, 256, serve=True),
    "bert": lambda: of_tokens(models.bert(), 16, 300, mask_token=299),
    "classifier": classifier,
    "llama": lambda: of_tokens(models.llama(**FAR), 16, 256, serve=True),
    "qwen2": lambda: of_tokens(models.qwen2(**FAR), 16, 256, serve=True),
    "vit": vit,
    "resnet18": resnet18,
    **({"torchvision_resnet18": torchvision_resnet18} if importlib.util.find_spec("torchvision") else {}),
    "mixer": mixer,
    "twin": twin,
    "teaching": teaching,
    "regression": regression,
}


def jobs_gpt2(folder):
    """For jobs: with dropout, without a reference."""
    torch.manual_seed(1)
    parcae_model.export(models.gpt2(dropout=0.1), models.tokens(256, 16), folder)


def jobs_classifier(folder):
    """For jobs: with dropout, and 400 samples whose first token says their label."""
    torch.manual_seed(1)
    parcae_model.export(models.classifier(dropout=0.1), models.masked_inputs(2), folder)
    inputs = models.masked_inputs(400)
    labels = inputs["input_ids"][:, 0] % 5
    data = [{**{name: x[i].tolist() for name, x in inputs.items()}, "label": int(labels[i])} for i in range(400)]
    parcae_model.export_dataset(data, folder / "data", inputs=tuple(inputs), targets="label")


def twin_for_bench(folder):
    """The shapes of tests/bench/exported_bench.cpp."""
    torch.manual_seed(1)
    model = models.Twin(4, 256, 8, 128, 512)
    parcae_model.export(model.layers(), models.tokens(512, 128), folder, names_from=model)


OTHERS = {"gpt2_dropout": jobs_gpt2, "classifier_dropout": jobs_classifier, "twin_for_bench": twin_for_bench}


def likeliest(model, prompt, places):
    """What the model goes on with, token by token, and by how much each was likelier than the next best."""
    tokens, ahead = list(prompt), []
    with torch.no_grad():
        while len(tokens) < places:
            best = model(torch.tensor([tokens])).logits[0, -1].topk(2)
            tokens.append(int(best.indices[0]))
            ahead.append(float(best.values[0] - best.values[1]))
    return {"prompt": len(prompt), "tokens": tokens, "ahead": ahead}


def export(name, folder):
    torch.manual_seed(1)
    case = MODELS[name]()
    model, forward, x, targets = (case.pop(k) for k in ("model", "forward", "x", "targets"))
    root = case.pop("root", model)
    inside = case.get("loss") == "in_last_layer"
    description = parcae_model.export(model, x, folder, targets=targets if inside else None, **case)
    if case.get("serve"):
        model.eval()
        prompts = [x[i % 2, :1 + i].tolist() for i in range(8)]
        (folder / "served.json").write_text(json.dumps([likeliest(model, p, x.shape[1]) for p in prompts]))
    modules = root if isinstance(root, (list, tuple)) else [root]
    for module in modules:
        module.train()
    named = {}
    for i, module in enumerate(modules):
        for n, p in module.named_parameters():
            named[f"{i}.{n}" if isinstance(root, (list, tuple)) else n] = p

    def computed():
        if inside:
            loss = forward(x, targets)
        elif case.get("loss") == "mean_squared_error":
            loss = F.mse_loss(forward(x).reshape(targets.shape), targets.float())
        else:
            loss = cross_entropy(forward(x), targets)
        loss.backward()
        return {"loss": struct.unpack("<I", struct.pack("<f", loss.item()))[0],
                "gradients": {n: digest(p.grad) for n, p in named.items()}}

    reference = computed()
    statistics = {n: b for m in modules for n, b in m.named_buffers() if n in description["tensors"] and "running" in n}
    first, *others = x.values() if isinstance(x, dict) else (x,)
    batch = {"x": first.clone(), "targets": targets.contiguous().clone()}
    batch.update({f"extra{i}": other.clone() for i, other in enumerate(others)})
    save_file({**batch, **{n: b.clone() for n, b in statistics.items()}}, folder / "reference.safetensors")
    if hasattr(model, "save_pretrained"):
        # Other weights than the exported ones, from a file: of every tensor.
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(1.25).add_(0.01)
        model.zero_grad()
        model.save_pretrained(folder / "pretrained")
        reference["loaded"] = computed()
    (folder / "reference.json").write_text(json.dumps(reference))


def main(folder, *names):
    torch.set_num_threads(1)
    for name in names or (*MODELS, *OTHERS):
        began = time.monotonic()
        target = pathlib.Path(folder) / name
        target.mkdir(parents=True, exist_ok=True)
        if name in OTHERS:
            OTHERS[name](target)
        else:
            export(name, target)
        print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
