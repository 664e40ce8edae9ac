"""Hugging Face's models as lists of layers. Each wrapper takes and returns one tensor; names stay those of the model.

Nothing of transformers is imported: what a model is, its class's name says.
"""

import torch
from torch import nn


def _one(x):
    return x[0] if isinstance(x, tuple) else x


def _all_places(x):
    return torch.arange(x.shape[1], device=x.device).unsqueeze(0)


class Block(nn.Module):
    """A block that needs only the hidden states."""

    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, hidden):
        return _one(self.block(hidden))


class GPT2Embeddings(nn.Module):
    def __init__(self, transformer):
        super().__init__()
        self.wte, self.wpe, self.drop = transformer.wte, transformer.wpe, transformer.drop

    def forward(self, tokens, positions=None):
        return self.drop(self.wte(tokens) + self.wpe(_all_places(tokens) if positions is None else positions))


class NormAndHead(nn.Module):
    def __init__(self, norm, head):
        super().__init__()
        self.norm, self.head = norm, head

    def forward(self, hidden):
        return self.head(self.norm(hidden))


class BertEmbeddings(nn.Module):
    def __init__(self, embeddings):
        super().__init__()
        self.embeddings = embeddings

    def forward(self, tokens, token_type_ids=None):
        return self.embeddings(input_ids=tokens, token_type_ids=token_type_ids)


class BertBlock(nn.Module):
    """A block that reads the sample's mask, if it has one: 1 is a token, 0 padding."""

    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, hidden, attention_mask=None):
        if attention_mask is None:
            return _one(self.block(hidden))
        hides = 1.0 - attention_mask[:, None, None, :].to(hidden.dtype)
        return _one(self.block(hidden, attention_mask=hides * torch.finfo(hidden.dtype).min))


class BertClassifier(nn.Module):
    def __init__(self, pooler, dropout, classifier):
        super().__init__()
        self.pooler, self.dropout, self.classifier = pooler, dropout, classifier

    def forward(self, hidden):
        return self.classifier(self.dropout(self.pooler(hidden)))


class RotaryBlock(nn.Module):
    """The rotary embedding's sines and cosines are computed in each block: so only hidden states lie between layers."""

    def __init__(self, block, rotary):
        super().__init__()
        self.block, self.rotary = block, rotary

    def forward(self, hidden, positions=None):
        places = _all_places(hidden) if positions is None else positions
        return _one(self.block(hidden, attention_mask=None, position_ids=places,
                               position_embeddings=self.rotary(hidden, places)))


class ViTHead(nn.Module):
    def __init__(self, norm, classifier):
        super().__init__()
        self.norm, self.classifier = norm, classifier

    def forward(self, hidden):
        return self.classifier(self.norm(hidden)[:, 0])


def _gpt2(model):
    body = model.transformer
    return [GPT2Embeddings(body), *map(Block, body.h), NormAndHead(body.ln_f, model.lm_head)]


def _bert(model):
    return [BertEmbeddings(model.bert.embeddings), *map(BertBlock, model.bert.encoder.layer), model.cls]


def _bert_classifier(model):
    body = model.bert
    return [BertEmbeddings(body.embeddings), *map(BertBlock, body.encoder.layer),
            BertClassifier(body.pooler, model.dropout, model.classifier)]


def _rotary(model):
    body = model.model
    blocks = [RotaryBlock(x, body.rotary_emb) for x in body.layers]
    return [body.embed_tokens, *blocks, NormAndHead(body.norm, model.lm_head)]


def _vit(model):
    return [model.vit.embeddings, *map(Block, model.vit.encoder.layer), ViTHead(model.vit.layernorm, model.classifier)]


def is_pretrained(model):
    """Whether from_pretrained of its class can load it."""
    return (type(model).__name__ in KNOWN and hasattr(type(model), "from_pretrained")
            and hasattr(getattr(model, "config", None), "to_json_string"))


KNOWN = {
    "GPT2LMHeadModel": _gpt2,
    "BertForMaskedLM": _bert,
    "BertForSequenceClassification": _bert_classifier,
    "LlamaForCausalLM": _rotary,
    "Qwen2ForCausalLM": _rotary,
    "ViTForImageClassification": _vit,
}
