"""Models as Hugging Face saves them, for jobs that start from their weights; and whether it loads what `parcae export
--layout huggingface` wrote.

published_models.py make FOLDER         FOLDER/NAME/pretrained (save_pretrained) and, of exported kinds,
                                        FOLDER/NAME/model (parcae_model, of a model with other weights)
                                        and FOLDER/NAME/data, samples for it
published_models.py compare A B...      of each pair, B (exported) has the parameters of A (pretrained), and the same
                                        logits
published_models.py trained NAME FOLDER...
                                        mean loss of a model over its last samples, with what a job of it exported, a
                                        line for each
published_models.py loss TEXT N FOLDER...
                                        mean loss over the last N samples of a text of bytes, a line for each folder
"""

import pathlib
import sys

import models
import torch
import transformers
from safetensors.torch import load_file
from torch.nn import functional as F

import parcae_model


def frozen_llama():
    model = models.llama()
    model.model.embed_tokens.requires_grad_(False)
    return model


# As it is made, an example, options of the export (None: a built-in kind), and of save_pretrained.
CASES = {
    "gpt": (models.gpt2, None, None, {"max_shard_size": "40KB"}),
    "bert": (lambda: models.bert(inner=128), None, None, {}),
    "gpt2": (lambda: models.gpt2(dropout=0.1), models.tokens(256, 16), {}, {"max_shard_size": "40KB"}),
    "masked": (models.bert, models.tokens(300, 16), {"mask_token": 299}, {}),
    "llama": (models.llama, models.tokens(256, 16), {}, {}),
    "frozen": (frozen_llama, models.tokens(256, 16), {}, {}),
    "qwen2": (models.qwen2, models.tokens(256, 16), {}, {}),
    "vit": (models.vit, models.pixels(32), {"pixels": parcae_model.Pixels()}, {}),
}

# Not of Hugging Face: exports of them are safetensors files.
OTHERS = {"resnet18": models.ResNet18, "mixer": models.mixer}
VALIDATION = 4  # samples


def samples_of(name):
    generator = torch.Generator().manual_seed(5)
    draw = lambda most, *shape: torch.randint(0, most, shape, generator=generator)
    if name in OTHERS or name == "vit":
        return [{"pixels": draw(256, 3, 32, 32).numpy(), "labels": i % 10} for i in range(36)]
    return [{"input_ids": x, "labels": x} for x in draw(256, 36, 16).tolist()]


def write_samples(name, folder):
    data = samples_of(name)
    first, shift = ("pixels", False) if "pixels" in data[0] else ("input_ids", True)
    parcae_model.export_dataset(data, folder, inputs=(first,), shift=shift)


def make(folder):
    for seed, (name, (build, example, options, saving)) in enumerate(CASES.items()):
        torch.manual_seed(seed)
        target = pathlib.Path(folder) / name
        model = build()
        model.save_pretrained(target / "pretrained", **saving)
        if options is None:
            continue
        if name != "frozen": # what is not trained is the exported model's
            model = build()
        parcae_model.export(model, example, target / "model", **options)
        write_samples(name, target / "data")
    for name, build in OTHERS.items():
        torch.manual_seed(9)
        model, target = build(), pathlib.Path(folder) / name
        layers = model.layers() if hasattr(model, "layers") else model
        parcae_model.export(layers, models.pixels(32), target / "model", pixels=parcae_model.Pixels(), names_from=model)
        write_samples(name, target / "data")
    narrow = models.gpt2()
    for kind in (torch.float16, torch.bfloat16):
        narrow.to(kind).save_pretrained(pathlib.Path(folder) / "gpt" / str(kind).removeprefix("torch."))


def load(folder):
    config = transformers.AutoConfig.from_pretrained(folder)
    model, report = getattr(transformers, config.architectures[0]).from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True)
    wrong = {k: v for k, v in report.items() if v}
    assert not wrong, f"{folder}: {wrong}"
    return model.eval()


def compare(*pairs):
    for first, folder in zip(pairs[::2], pairs[1::2], strict=True):
        expected, model = load(first), load(folder)
        x = models.pixels(32) / 255 if "pixel_values" in expected.main_input_name else models.tokens(256, 16)
        assert type(model) is type(expected), folder
        theirs = model.state_dict()
        assert theirs.keys() == expected.state_dict().keys(), folder
        for name, value in expected.state_dict().items():
            assert torch.equal(value, theirs[name]), f"{folder}: {name}"
        with torch.no_grad():
            assert torch.equal(model(x).logits, expected(x).logits), folder


def trained(*names_and_folders):
    for name, folder in zip(names_and_folders[::2], names_and_folders[1::2], strict=True):
        last = samples_of(name)[-VALIDATION:]
        labels = torch.tensor([x["labels"] for x in last])
        if name in OTHERS:
            model = OTHERS[name]()
            model.load_state_dict(load_file(folder))  # strict; PyTorch makes up how many batches BatchNorm saw
        else:
            model = load(folder)
        model.eval()
        with torch.no_grad():
            if "pixels" in last[0]:
                x = parcae_model.Pixels()(torch.stack([torch.from_numpy(x["pixels"]) for x in last]))
                output = model(x)
            else:
                output = model(torch.tensor([x["input_ids"] for x in last]))
                labels = F.pad(labels[:, 1:], (0, 1), value=-100)
            logits = getattr(output, "logits", output)
            # All digits: Parcae's is to have the same bits.
            print(repr(F.cross_entropy(logits.flatten(0, -2), labels.flatten()).item()))


def loss(text, count, *folders):
    text = pathlib.Path(text).read_bytes()
    for folder in folders:
        print(loss_of(load(folder), text, int(count)))


def loss_of(model, text, count):
    length = model.config.n_positions
    samples = (len(text) - 1) // length
    losses = []
    for i in range(samples - count, samples):
        tokens = torch.tensor(list(text[i * length:(i + 1) * length + 1]))
        with torch.no_grad():
            losses.append(F.cross_entropy(model(tokens[None, :-1]).logits[0], tokens[1:]).item())
    return sum(losses) / len(losses)


if __name__ == "__main__":
    torch.set_num_threads(1)
    {"make": make, "compare": compare, "trained": trained, "loss": loss}[sys.argv[1]](*sys.argv[2:])
