"""Hugging Face's GPT-2, small enough for two cores, over bytes, started from random weights; from_pretrained(...)
instead starts from published ones. Writes the folder that gpt2.toml and serve.toml name."""

import parcae_model
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(1)
config = GPT2Config(n_layer=4, n_head=4, n_embd=64, n_positions=64, vocab_size=256, bos_token_id=None,
                    eos_token_id=None)
model = GPT2LMHeadModel(config)
parcae_model.export(model, torch.zeros(2, 64, dtype=torch.int64), "/tmp/parcae-gpt2", serve=True)
