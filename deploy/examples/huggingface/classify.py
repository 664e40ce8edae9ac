"""A small BERT that tells questions from statements, and its data: token ids, a mask of what is padding, a label.

Writes the folders that classify.toml names. With the library datasets, `data` is load_dataset(...).map(tokenise)
instead.
"""

import random

import parcae_model
import torch
from transformers import BertConfig, BertForSequenceClassification

LENGTH = 32
STARTS = {0: ("we see", "they know", "you have", "the tests show"),
          1: ("do we see", "who knows", "what have you", "why do the tests show")}
ENDS = ("the reason", "a new machine", "all of it", "nothing at all", "how long it takes")


def tokenise(text):
    ids = [1, *(b + 2 for b in text.encode())][:LENGTH]
    padding = LENGTH - len(ids)
    return {"input_ids": ids + [0] * padding, "attention_mask": [1] * len(ids) + [0] * padding}


draw = random.Random(1)
data = []
for _ in range(600):
    label = draw.randrange(2)
    data.append({**tokenise(f"{draw.choice(STARTS[label])} {draw.choice(ENDS)}"), "label": label})

torch.manual_seed(1)
config = BertConfig(vocab_size=258, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
                    max_position_embeddings=LENGTH, num_labels=2)
model = BertForSequenceClassification(config)
example = {name: torch.tensor([data[0][name], data[1][name]]) for name in ("input_ids", "attention_mask")}
parcae_model.export(model, example, "/tmp/parcae-bert")
parcae_model.export_dataset(data, "/tmp/parcae-questions", inputs=("input_ids", "attention_mask"), targets="label")
