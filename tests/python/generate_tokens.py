"""What transformers' generate takes for serving_bench's requests: GPT-2 with random weights, one thread. Prints
processor seconds: of all requests one by one, and of all in one static batch, padded on the left.

generate_tokens.py WIDTH LAYERS HEADS VOCABULARY SEQUENCE NEW LENGTH...       LENGTH: of each prompt
"""

import sys
import time

import torch
import transformers


def main(width, layers, heads, vocabulary, sequence, new, *lengths):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    config = transformers.GPT2Config(n_embd=width, n_layer=layers, n_head=heads, vocab_size=vocabulary,
                                     n_positions=sequence, bos_token_id=None, eos_token_id=None)
    model = transformers.GPT2LMHeadModel(config).eval()
    prompts = [torch.randint(vocabulary, (1, x)) for x in lengths]
    longest = max(lengths)
    batch = torch.cat([torch.nn.functional.pad(x, (longest - x.shape[1], 0)) for x in prompts])
    mask = torch.cat([torch.nn.functional.pad(torch.ones_like(x), (longest - x.shape[1], 0)) for x in prompts])

    def generate(tokens, attention_mask):
        found = model.generate(tokens, attention_mask=attention_mask, do_sample=False, pad_token_id=0,
                               min_new_tokens=new, max_new_tokens=new)
        assert found.shape[1] == tokens.shape[1] + new

    def seconds(f):
        began = time.process_time()
        f()
        return time.process_time() - began

    def one_by_one():
        for x in prompts:
            generate(x, torch.ones_like(x))

    generate(prompts[0], torch.ones_like(prompts[0]))  # warms up
    print(seconds(one_by_one), seconds(lambda: generate(batch, mask)))


if __name__ == "__main__":
    with torch.inference_mode():
        main(*map(int, sys.argv[1:]))
