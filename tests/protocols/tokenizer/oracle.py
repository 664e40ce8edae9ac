#!/usr/bin/env python3
"""oracle.py FOLDER: trains byte-level BPEs with Hugging Face's tokenizers, and writes what these make of 10,000 texts.

FOLDER/NAME/tokenizer.json   as the models of that name have it: pattern, normal form, special tokens, form of merges
FOLDER/NAME/texts            a line each: the bytes in hexadecimal, the tokens, what these are as text, in hexadecimal
FOLDER/NAME/tokens           likewise without the first: tokens drawn, which make damaged UTF-8
FOLDER/NAME/chats            messages and the tokens of the prompt, as a JSON value; by the model's own Jinja template
"""

import json
import pathlib
import random
import sys

import jinja2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n' }}{% endfor %}"
          "{{ '<|im_start|>assistant\n' }}")
LLAMA3_CHAT = ("{{ '<|begin_of_text|>' }}{% for m in messages %}{{ '<|start_header_id|>' + m.role +"
               " '<|end_header_id|>\n\n' + m.content | trim + '<|eot_id|>' }}{% endfor %}"
               "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}")
SPECIAL = {"gpt2": ["<|endoftext|>"], "spaced": ["<|endoftext|>"],
           "smollm": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
           "qwen2": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
           "llama3": ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]}
# Letters, marks and digits of scripts; Hangul's letters, which compose; presentation forms, which do not.
RANGES = [(0x61, 0x7A), (0x41, 0x5A), (0x61, 0x7A), (0xC0, 0x24F), (0x370, 0x3FF), (0x400, 0x4FF), (0x531, 0x587),
          (0x5D0, 0x5EA), (0x620, 0x669), (0x900, 0x96F), (0x980, 0x9FF), (0xB80, 0xBEF), (0xE01, 0xE5B),
          (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1200, 0x1380), (0x1780, 0x17F9), (0x1E00, 0x1FFF), (0x3041, 0x30FF),
          (0x4E00, 0x9FA5), (0xAC00, 0xD7A3), (0xF900, 0xFA2D), (0xFB00, 0xFB4F), (0x10330, 0x1034A),
          (0x1D15E, 0x1D1BF), (0x1D400, 0x1D7FF), (0x20000, 0x2A6D6), (0x2F800, 0x2FA1D)]
PIECES = [" ", " ", " ", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n ", "\u00a0", "\u1680", "\u180e", "\u2009",
          "\u2028", "\u202f", "\u3000", "\u0085", "\x0b", "\x1c", "\u200b", "\ufeff", "'s", "'S", "'ll", "'LL",
          "'\u017f", "'re", "'T", "'", "''", "0", "12", "2024", "123456", "\u00b2", "\u2167", "\u0664\u0665", "\u00bd",
          ".", ", ", "...", "!?", "()", "{}\n", "==", "/*", "\\", "\u2014", "\u20ac", "\u2211", "\u0301",
          "\u0323\u0307", "\u0307\u0323", "e\u0301", "\u212b", "\u1e9b\u0323", "\u0344", "\u0958", "\u0f77", "\u1b06",
          "\U0001f469\u200d\U0001f4bb", "\U0001f1e9\U0001f1ea", "\U0001f44d\U0001f3fd", "\x00", "\x7f", "\ue000",
          "\U0010ffff", "<tool_call>", "<tool", "<|im_end|>", "<|im_start|>", "<|endoftext|>", "<|eot_id|>",
          "<|begin_of_text|>", "<|", "|>", "<<|im_end|>>", "caf\u00e9_", "cafe\u0301_"]


class Writer:
    """Texts, the same each time."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def word(self):
        first, last = self.random.choice(RANGES)
        return "".join(chr(self.random.randint(first, last)) for _ in range(self.random.randint(1, 9)))

    def text(self):
        parts = []
        for _ in range(self.random.randint(0, 12)):
            draw = self.random.random()
            if draw < 0.45:
                parts.append(self.word())
            elif draw < 0.97:
                parts.append(self.random.choice(PIECES))
            else:
                parts.append(self.random.choice((" ", "a", "\u0301", "\u0323\u0301", "\n", "7", "\u1100")) *
                             self.random.randint(2, 90))
        return "".join(parts)

    def damaged(self):
        text = bytearray(self.text().encode())
        for _ in range(self.random.randint(1, 4)):
            at = self.random.randint(0, len(text))
            text[at:at + self.random.randint(0, 2)] = self.random.choice(
                (b"\xff", b"\xc3", b"\xe2\x82", b"\xed\xa0\x80", b"\xf0\x9f\x92", b"\xc0\x80", b"\xf4\x90\x80\x80",
                 b"\x80", b"\xe0\x80\x80", b"\xf8\x88\x80\x80\x80"))
        return bytes(text)


def pre_tokenizer(name):
    if name in ("gpt2", "spaced"):
        return pre_tokenizers.ByteLevel(add_prefix_space=name == "spaced")
    if name == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                        pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2 if name == "qwen2" else LLAMA3), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def trained(name, corpus):
    result = Tokenizer(models.BPE())
    result.pre_tokenizer = pre_tokenizer(name)
    result.decoder = decoders.ByteLevel()
    if name == "qwen2":
        result.normalizer = normalizers.NFC()
    result.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=3000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    result.add_special_tokens(SPECIAL[name])
    if name == "qwen2":
        result.add_tokens([AddedToken("<tool_call>", normalized=False), "cafe\u0301_", "<tool"])
    if name == "llama3":
        result.post_processor = processors.Sequence([processors.ByteLevel(), processors.TemplateProcessing(
            "<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", result.token_to_id("<|begin_of_text|>"))])])
    written = json.loads(result.to_str())
    merges = written["model"]["merges"]
    if name == "llama3":  # words that no merges make
        written["model"]["ignore_merges"] = True
        written["model"]["merges"] = [x for i, x in enumerate(merges) if i % 10]
    if name == "gpt2":
        written["model"]["merges"] = [" ".join(x) for x in merges]
    return json.dumps(written, ensure_ascii=False)


def chats_of(tokenizer, template, writer, count):
    render = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(template).render
    for _ in range(count):
        messages = [{"role": role, "content": writer.text().replace("<|", "<")}
                    for role in writer.random.choice((["user"], ["system", "user"], ["user", "assistant", "user"]))]
        yield {"messages": messages,
               "ids": tokenizer.encode(render(messages=messages), add_special_tokens=False).ids}


def main(folder):
    corpus_writer, texts_writer = Writer(1), Writer(2)
    corpus = [corpus_writer.text() for _ in range(5000)] + [pathlib.Path(__file__).read_text()] * 3
    texts = [texts_writer.damaged() if i % 10 == 0 else texts_writer.text().encode() for i in range(10000)]
    for name in SPECIAL:
        here = pathlib.Path(folder, name)
        here.mkdir(parents=True)
        written = trained(name, corpus)
        (here / "tokenizer.json").write_text(written)
        tokenizer = Tokenizer.from_str(written)
        size = tokenizer.get_vocab_size()
        templates = {"qwen2": CHATML, "smollm": CHATML, "llama3": LLAMA3_CHAT}
        chats = list(chats_of(tokenizer, templates[name], Writer(3), 300)) if name in templates else []
        (here / "chats").write_text(json.dumps(chats))
        tokenizer.encode_special_tokens = True  # users do not write them
        encoded = [x.ids for x in tokenizer.encode_batch([x.decode(errors="replace") for x in texts])]
        draw = random.Random(4)
        drawn = [[draw.randrange(size + 5) for _ in range(draw.randint(0, 12))] for _ in range(2000)]
        given = [x.hex() + " " for x in texts]
        for file, all_ids, before in (("texts", encoded, given), ("tokens", drawn, [""] * len(drawn))):
            (here / file).write_text("".join(
                f"{first}[{','.join(map(str, ids))}] {text.encode().hex()}\n"
                for first, ids, text in zip(before, all_ids, tokenizer.decode_batch(all_ids))))


if __name__ == "__main__":
    main(*sys.argv[1:])
