"""The two models, dense and a mixture of experts: their shapes, their training, and what their tokens are like."""

from __future__ import annotations

import json
import math
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from trmon_research.collapse.markdown import table
from trmon_research.language.plans import DATA, TEMPERATURE, Kind
from trmon_research.language.text import END_ID, PADDING_ID, VOCABULARY, text, tokens

KINDS: tuple[Kind, ...] = ("dense", "moe")
RECIPE = DATA / "recipe.json"

SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 512,
    "rope_theta": 10_000.0,
    "tie_word_embeddings": True,
    "pad_token_id": PADDING_ID,
    "eos_token_id": END_ID,
    "bos_token_id": None,
}
EXPERTS = {
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 192,
    "norm_topk_prob": True,
    "router_aux_loss_coef": 0.01,
}
N_STEPS, N_ROWS, ROW = 3200, 16, 256
PEAK_RATE, WARM_UP = 2e-3, 100


def new_model(kind: Kind) -> PreTrainedModel:
    """Return a model with random weights: 3.7 million parameters, or 4.6 million of which 1.9 see a token."""
    torch.manual_seed(0)
    if kind == "dense":
        return Qwen3ForCausalLM(Qwen3Config(num_hidden_layers=4, **SHAPE))
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(num_hidden_layers=3, **SHAPE, **EXPERTS))


def weights_path(kind: Kind) -> Path:
    """Return the file of the trained weights."""
    return DATA / f"{kind}.safetensors"


def trained_model(kind: Kind) -> PreTrainedModel:
    """Return a model with the trained weights, which are stored in bfloat16, in float32."""
    model = new_model(kind)
    stored = {name: value.float() for name, value in load_file(weights_path(kind)).items()}
    # The last layer shares the weights of the first.
    model.load_state_dict({**stored, "lm_head.weight": stored["model.embed_tokens.weight"]})
    return model


def rate(step: int) -> float:
    """Return the learning rate of a step: it rises for 100 steps, then falls as a cosine to a hundredth."""
    if step < WARM_UP:
        return PEAK_RATE * (step + 1) / WARM_UP
    done = (step - WARM_UP) / (N_STEPS - WARM_UP)
    return PEAK_RATE * (0.01 + 0.99 * (1 + math.cos(math.pi * done)) / 2)


def rows_of(stream: npt.NDArray[np.int64], *, seed: int) -> Iterator[torch.Tensor]:
    """Yield batches [rows, tokens] of the text without end; each pass over it is cut and ordered at random."""
    random = np.random.default_rng(seed)
    while True:
        start = int(random.integers(ROW))
        whole = stream[start : start + (len(stream) - start) // ROW * ROW].reshape(-1, ROW)
        order = random.permutation(len(whole))
        for at in range(0, len(order) - N_ROWS + 1, N_ROWS):
            yield torch.from_numpy(whole[order[at : at + N_ROWS]])


def train(kind: Kind, folder: Path) -> None:
    """Train a model on the text and store its weights; one that was interrupted continues from `folder`.

    A core takes 50 minutes for each model. Matrix products are in bfloat16.
    """
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = folder / f"{kind}.pt"
    model = new_model(kind)
    decays = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    others = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    groups = [{"params": decays, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95))
    batches, first, seconds = rows_of(tokens(text().trained), seed=0), 0, 0.0
    if checkpoint.exists():
        kept = torch.load(checkpoint)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        first, seconds = kept["step"], kept["seconds"]
        for _ in range(first):
            next(batches)
    extra: dict[str, Any] = {"output_router_logits": True} if kind == "moe" else {}
    began = time.process_time()
    for step in range(first, N_STEPS):
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        ids = next(batches)
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(input_ids=ids, labels=ids, **extra).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if (step + 1) % 50 == 0:
            spent = seconds + time.process_time() - began
            print(f"{kind} step {step + 1} loss {loss.item():.3f} {spent:.0f} s", flush=True)
            kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
            torch.save({**kept, "seconds": spent}, checkpoint.with_suffix(".new"))
            checkpoint.with_suffix(".new").rename(checkpoint)
    store(kind, model, seconds=seconds + time.process_time() - began)


def store(kind: Kind, model: PreTrainedModel, *, seconds: float) -> None:
    """Store the weights in bfloat16, and in the recipe what they were made of."""
    state = {
        name: value.bfloat16().contiguous() for name, value in model.state_dict().items() if name != "lm_head.weight"
    }
    save_file(state, weights_path(kind))
    recipe = json.loads(RECIPE.read_text()) if RECIPE.exists() else {}
    recipe[kind] = {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "python": platform.python_version(),
        "text": text().digest,
        "tokens_of_text": len(tokens(text().trained)),
        "tokens_seen": N_STEPS * N_ROWS * ROW,
        "core_seconds": round(seconds),
        "held_out_nats": round(float(np.concatenate([-row for row in held_out_logprobs(model)]).mean()), 4),
    }
    RECIPE.write_text(json.dumps(recipe, indent=1) + "\n")


@torch.no_grad()
def held_out_logprobs(model: PreTrainedModel, *, n_rows: int = 64) -> Iterator[npt.NDArray[np.float32]]:
    """Yield the log-probs of the tokens of held-out text, a batch at a time."""
    stream = tokens(text().held_out)
    whole = torch.from_numpy(stream[: n_rows * ROW].reshape(-1, ROW))
    for ids in whole.split(N_ROWS):
        scored = model(input_ids=ids).logits[:, :-1].log_softmax(-1)
        yield scored.gather(-1, ids[:, 1:, None]).flatten().numpy()


def token_table() -> list[str]:
    """Return a table of what the tokens that each model samples are like, and those of the text it was not shown."""
    from trmon_research.language.engine import Engine
    from trmon_research.language.text import prompts, tokenizer

    torch.set_num_threads(1)
    rows = []
    for kind in KINDS:
        model = trained_model(kind)
        engine = Engine(model.config, precision="bfloat16", seed=0)
        engine.sampling.temperature = TEMPERATURE
        engine.load(model.state_dict())
        rollouts = engine.generate([one.ids for one in tokenizer().encode_batch(prompts()[:64])], n_tokens=192)
        sampled = np.concatenate([one.logprobs for one in rollouts])
        text_of = np.concatenate(list(held_out_logprobs(model)))
        for name, logprobs in ((f"sampled at {TEMPERATURE}", sampled), ("held-out text", text_of)):
            shares = [(logprobs > -bound).mean() for bound in (1e-3, 1e-2, 1e-1)]
            cells = [f"{-logprobs.mean():.2f}", *(f"{share:.1%}" for share in (*shares, (logprobs == 0).mean()))]
            rows.append([f"{kind}, {name}", str(len(logprobs)), *cells])
    header = ["tokens", "n", "mean nats", "within 0.001 nats of certain", "0.01", "0.1", "exactly 0.0"]
    return table(header, rows)
