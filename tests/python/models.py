"""Models that the tests export: of Hugging Face by their configurations, others written here."""

import torch
import transformers
from torch import nn
from torch.nn import functional as F


def tokens(vocabulary, sequence, samples=2):
    generator = torch.Generator().manual_seed(3)
    return torch.randint(0, vocabulary, (samples, sequence), generator=generator)


def pixels(image, channels=3, samples=2):
    generator = torch.Generator().manual_seed(4)
    return torch.randint(0, 256, (samples, channels, image, image), generator=generator)


# --- Hugging Face


def gpt2(dropout=0.0, **sizes):
    small = {"n_layer": 2, "n_head": 4, "n_embd": 32, "n_positions": 16, "vocab_size": 256}
    config = transformers.GPT2Config(**{**small, **sizes}, resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout,
                                     bos_token_id=None, eos_token_id=None)
    return transformers.GPT2LMHeadModel(config)


def bert(inner=64):
    return transformers.BertForMaskedLM(transformers.BertConfig(
        vocab_size=300, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=inner,
        max_position_embeddings=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))


def classifier(dropout=0.0):
    return transformers.BertForSequenceClassification(transformers.BertConfig(
        vocab_size=300, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=32, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, num_labels=5))


def masked_inputs(samples, places=16):
    """Of BERT: ids, two types, a mask of different lengths."""
    lengths = torch.arange(samples) % (places - 4) + 4
    mask = (torch.arange(places) < lengths[:, None]).to(torch.int64)
    return {"input_ids": torch.randint(300, (samples, places)) * mask,
            "token_type_ids": (torch.arange(places) >= lengths[:, None] // 2).to(torch.int64), "attention_mask": mask}


def llama(**options):
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=256, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=32, tie_word_embeddings=False, **options))


def qwen2(**options):
    return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(
        vocab_size=256, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=32, tie_word_embeddings=True, **options))


def vit():
    return transformers.ViTForImageClassification(transformers.ViTConfig(
        image_size=32, patch_size=8, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        num_labels=10, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))


# --- written here


class MixerBlock(nn.Module):
    """Tolstikhin et al., "MLP-Mixer": mixes places, then channels."""

    def __init__(self, places, width):
        super().__init__()
        mlp = lambda n, inner: nn.Sequential(nn.Linear(n, inner), nn.GELU(), nn.Linear(inner, n))
        self.norm1, self.places = nn.LayerNorm(width), mlp(places, 2 * places)
        self.norm2, self.channels = nn.LayerNorm(width), mlp(width, 2 * width)

    def forward(self, x):
        x = x + self.places(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Patches(nn.Module):
    def __init__(self, size, width):
        super().__init__()
        self.convolution = nn.Conv2d(3, width, size, size)

    def forward(self, x):
        return self.convolution(x).flatten(2).transpose(1, 2)


class MeanHead(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        return self.linear(self.norm(x).mean(1))


def mixer(blocks=3, width=32, image=32):
    mixing = [MixerBlock((image // 8) ** 2, width) for _ in range(blocks)]
    return nn.Sequential(Patches(8, width), *mixing, MeanHead(width, 10))


class BasicBlock(nn.Module):
    """torchvision's, with its names and its activations in place; as narrow as jobs of tests want it."""

    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = None
        if stride != 1 or channels_in != channels:
            self.downsample = nn.Sequential(nn.Conv2d(channels_in, channels, 1, stride, bias=False),
                                            nn.BatchNorm2d(channels))

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class ResNet18(nn.Module):
    def __init__(self, classes=10, width=16):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        stage = lambda a, b, stride: nn.Sequential(BasicBlock(a, b, stride), BasicBlock(b, b, 1))
        self.layer1, self.layer2 = stage(width, width, 1), stage(width, 2 * width, 2)
        self.layer3, self.layer4 = stage(2 * width, 4 * width, 2), stage(4 * width, 8 * width, 2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(8 * width, classes)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))

    def layers(self):
        return [nn.Sequential(self.conv1, self.bn1, self.relu, self.maxpool), *self.layer1, *self.layer2, *self.layer3,
                *self.layer4, nn.Sequential(self.avgpool, nn.Flatten(), self.fc)]


class Twin(nn.Module):
    """The built-in kind gpt, as one would write it in PyTorch."""

    class Embedding(nn.Module):
        def __init__(self, width, sequence, vocabulary, dropout):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(sequence, width)
            self.drop = nn.Dropout(dropout)

        def forward(self, tokens):
            return self.drop(self.wte(tokens) + self.wpe.weight[:tokens.shape[1]])

    class Block(nn.Module):
        def __init__(self, width, heads, dropout):
            super().__init__()
            self.heads, self.dropout = heads, dropout
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.c_fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.drop = nn.Dropout(dropout)

        def forward(self, x):
            samples, sequence, width = x.shape
            parts = self.c_attn(self.ln_1(x)).view(samples, sequence, 3, self.heads, width // self.heads)
            q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
            dropout = self.dropout if self.training else 0.0
            mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
            x = x + self.drop(self.c_proj(mixed.transpose(1, 2).reshape(samples, sequence, width)))
            return x + self.drop(self.out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh")))

    class Head(nn.Module):
        def __init__(self, width, vocabulary):
            super().__init__()
            self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

        def forward(self, x):
            return self.lm_head(self.ln_f(x))

    def __init__(self, layers, width, heads, sequence, vocabulary, dropout=0.0):
        super().__init__()
        self.embedding = Twin.Embedding(width, sequence, vocabulary, dropout)
        self.blocks = nn.ModuleList(Twin.Block(width, heads, dropout) for _ in range(layers))
        self.head = Twin.Head(width, vocabulary)
        self.head.lm_head.weight = self.embedding.wte.weight
        for name, x in self.named_parameters():
            if x.dim() > 1:
                nn.init.normal_(x, std=0.02)

    def forward(self, x):
        for layer in self.layers():
            x = layer(x)
        return x

    def layers(self):
        return [self.embedding, *self.blocks, self.head]


class MaskedAttention(nn.Module):
    """With a causal mask as a buffer, and weights made by hand: as many teaching models have it."""

    def __init__(self, width, sequence):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.register_buffer("mask", torch.tril(torch.ones(sequence, sequence)).view(1, sequence, sequence))

    def forward(self, x):
        q, k, v = self.qkv(x).split(x.shape[2], dim=2)
        scores = (q @ k.transpose(1, 2)) / x.shape[2] ** 0.5
        scores = scores.masked_fill(self.mask[:, :x.shape[1], :x.shape[1]] == 0, float("-inf"))
        return x + F.softmax(scores, dim=-1) @ v


class LossInside(nn.Module):
    """A last layer that returns the loss: cross-entropy with smoothed labels."""

    def __init__(self, width, vocabulary):
        super().__init__()
        self.linear = nn.Linear(width, vocabulary)

    def forward(self, x, targets):
        return F.cross_entropy(self.linear(x).flatten(0, 1), targets.flatten(), label_smoothing=0.1)


def teaching(width=16, sequence=12, vocabulary=64):
    return [nn.Embedding(vocabulary, width), MaskedAttention(width, sequence), MaskedAttention(width, sequence),
            LossInside(width, vocabulary)]
