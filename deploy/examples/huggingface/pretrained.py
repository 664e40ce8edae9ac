"""Stands for a model that somebody published: a small GPT-2 over bytes with random weights, as save_pretrained writes
it. Writes the folder that finetune.toml names, or the one given. A folder from Hugging Face's hub does as well, with
its sizes in the job file.
"""

import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(1)
config = GPT2Config(n_layer=4, n_head=4, n_embd=64, n_positions=64, vocab_size=256, bos_token_id=None,
                    eos_token_id=None)
GPT2LMHeadModel(config).save_pretrained(sys.argv[1] if len(sys.argv) > 1 else "/tmp/parcae-gpt2-pretrained")
