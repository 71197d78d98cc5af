"""The rollout engine: samples from a copy of the weights, in another precision, with a cache of keys and values.

It shares no code with the trainer's model, as engines do: other kernels, another order of sums, other shapes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from trmon_research.language.plans import Precision
from trmon_research.language.text import END_ID, PADDING_ID


@dataclass(frozen=True, slots=True)
class Rollout:
    """What an engine gives of one prompt: the tokens of the response, and a log-prob for each."""

    tokens: list[int]
    logprobs: list[float]


@dataclass
class Sampling:
    """How tokens are chosen. Args: router_noise: standard deviation of what is added to the routers' logits."""

    temperature: float = 1.0
    top_p: float = 1.0
    router_noise: float = 0.0


class Engine:
    """Samples responses to prompts. Args: config: of the trainer's model, a Qwen3 or a Qwen3-MoE."""

    def __init__(self, config: Any, *, precision: Precision, seed: int) -> None:
        self.precision = precision
        self.sampling = Sampling()
        self._n_layers: int = config.num_hidden_layers
        self._n_heads: int = config.num_attention_heads
        self._n_kv_heads: int = config.num_key_value_heads
        self._n_chosen: int = getattr(config, "num_experts_per_tok", 0)
        self._epsilon: float = config.rms_norm_eps
        self._size: int = config.head_dim
        theta = config.rope_parameters["rope_theta"]
        self._frequencies = theta ** -(torch.arange(0, self._size, 2, dtype=torch.float32) / self._size)
        self._random = torch.Generator().manual_seed(seed)
        self._weights: dict[str, Tensor] = {}

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Take over weights. In int8 matrices have a scale a row, and are multiplied as bfloat16."""
        dtype = torch.float32 if self.precision == "float32" else torch.bfloat16
        self._weights = {
            name: self._rounded(name, value.detach()).to(dtype, copy=True) for name, value in weights.items()
        }

    def _rounded(self, name: str, value: Tensor) -> Tensor:
        if self.precision != "int8" or value.dim() < 2 or "embed" in name:
            return value
        scale = value.abs().amax(-1, keepdim=True).clamp_min(1e-12) / 127
        return (value / scale).round() * scale

    @torch.no_grad()
    def generate(self, prompts: Sequence[Sequence[int]], *, n_tokens: int) -> list[Rollout]:
        """Return a response to each prompt, which ends with the end token or after `n_tokens`."""
        n_rows, longest = len(prompts), max(map(len, prompts))
        ids = torch.tensor([[PADDING_ID] * (longest - len(prompt)) + list(prompt) for prompt in prompts])
        is_read = torch.tensor([[False] * (longest - len(prompt)) + [True] * len(prompt) for prompt in prompts])
        shape = (self._n_layers, 2, n_rows, self._n_kv_heads, longest + n_tokens, self._size)
        cache = torch.zeros(shape, dtype=self._weights["model.norm.weight"].dtype)
        rows, found = torch.arange(n_rows), [Rollout([], []) for _ in prompts]
        logits = self._forward(ids, cache=cache, start=0, is_read=is_read)
        for start in range(longest, longest + n_tokens):
            tokens, logprobs = self._sample(logits)
            for row, token, logprob in zip(rows.tolist(), tokens.tolist(), logprobs.tolist(), strict=True):
                found[row].tokens.append(token)
                found[row].logprobs.append(logprob)
            goes_on = tokens != END_ID
            if not goes_on.any():
                break
            if not goes_on.all():
                rows, tokens, is_read, cache = rows[goes_on], tokens[goes_on], is_read[goes_on], cache[:, :, goes_on]
            is_read = torch.cat([is_read, torch.ones(len(rows), 1, dtype=torch.bool)], 1)
            logits = self._forward(tokens[:, None], cache=cache, start=start, is_read=is_read)
        return found

    def _sample(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return a token of each row and its log-prob in the distribution it was drawn from."""
        logprobs = (logits / self.sampling.temperature).log_softmax(-1)
        if self.sampling.top_p < 1:
            likely = logprobs.sort(descending=True)
            before = likely.values.exp().cumsum(-1) - likely.values.exp()
            is_kept = torch.zeros_like(before, dtype=torch.bool)
            is_kept = is_kept.scatter(-1, likely.indices, before < self.sampling.top_p)
            logprobs = logprobs.where(is_kept, -torch.inf).log_softmax(-1)
        tokens = torch.multinomial(logprobs.exp(), 1, generator=self._random)
        return tokens[:, 0], logprobs.gather(-1, tokens)[:, 0]

    def _forward(self, ids: Tensor, *, cache: Tensor, start: int, is_read: Tensor) -> Tensor:
        """Return the logits after the last of the tokens [rows, tokens], which are added to the cache at `start`."""
        weights = self._weights
        end = start + ids.shape[1]
        at = (is_read.cumsum(1) - 1).clamp_min(0)[:, start:end]
        angles = at[:, None, :, None] * self._frequencies
        turn = torch.cat([angles.cos(), angles.cos()], -1), torch.cat([angles.sin(), angles.sin()], -1)
        # A padded token reads itself alone, and nothing reads it.
        order = torch.arange(end)
        sees = (order <= order[start:, None]) & (is_read[:, None, :] | (order == order[start:, None]))
        x = weights["model.embed_tokens.weight"][ids]
        for layer in range(self._n_layers):
            name = f"model.layers.{layer}."
            h = self._norm(x, name + "input_layernorm")
            q, k, v = (
                F.linear(h, weights[f"{name}self_attn.{part}_proj.weight"]).unflatten(-1, (-1, self._size))
                for part in "qkv"
            )
            q, k = self._norm(q, name + "self_attn.q_norm"), self._norm(k, name + "self_attn.k_norm")
            cache[layer, 0, :, :, start:end] = _turned(k.transpose(1, 2), turn)
            cache[layer, 1, :, :, start:end] = v.transpose(1, 2)
            read = F.scaled_dot_product_attention(
                _turned(q.transpose(1, 2), turn),
                cache[layer, 0, :, :, :end],
                cache[layer, 1, :, :, :end],
                attn_mask=sees[:, None],
                enable_gqa=True,
            )
            x = x + F.linear(read.transpose(1, 2).flatten(2), weights[name + "self_attn.o_proj.weight"])
            h = self._norm(x, name + "post_attention_layernorm")
            x = x + (self._experts(h, name) if self._n_chosen else self._mlp(h, name))
        last = self._norm(x[:, -1], "model.norm")
        return F.linear(last, weights["model.embed_tokens.weight"]).float()

    def _norm(self, x: Tensor, name: str) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self._epsilon)
        return self._weights[name + ".weight"] * wide.to(x.dtype)

    def _mlp(self, h: Tensor, name: str) -> Tensor:
        gate, up, down = (self._weights[f"{name}mlp.{part}_proj.weight"] for part in ("gate", "up", "down"))
        return F.linear(F.silu(F.linear(h, gate)) * F.linear(h, up), down)

    def _experts(self, h: Tensor, name: str) -> Tensor:
        flat = h.flatten(0, 1)
        logits = F.linear(flat, self._weights[name + "mlp.gate.weight"]).float()
        if self.sampling.router_noise:
            logits = logits + self.sampling.router_noise * torch.randn(logits.shape, generator=self._random)
        share, chosen = logits.softmax(-1).topk(self._n_chosen)
        share = share / share.sum(-1, keepdim=True)
        found = torch.zeros_like(flat)
        for expert in chosen.unique().tolist():
            rows, place = (chosen == expert).nonzero(as_tuple=True)
            gate, up = F.linear(flat[rows], self._weights[name + "mlp.experts.gate_up_proj"][expert]).chunk(2, -1)
            out = F.linear(F.silu(gate) * up, self._weights[name + "mlp.experts.down_proj"][expert])
            found.index_add_(0, rows, (out * share[rows, place, None].to(out.dtype)))
        return found.view_as(h)


def _turned(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Return x [rows, heads, tokens, size] with rotary positions."""
    cos, sin = (part.to(x.dtype) for part in turn)
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin
