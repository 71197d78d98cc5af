"""Secrets are recognised by the name of a value and by the form of a text; what trainers call tokens stays."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from trmon_client.core.redaction import redact, redact_values

KEPT: dict[str, Any] = {
    "eos_token": "</s>",
    "pad_token": "<|endoftext|>",
    "stop_token": "STOP HERE",
    "step_token": "\u043a\u0438",
    "bos_token_id": 151643,
    "max_tokens": 512,
    "max_token": "4096",
    "tokens_per_second": 3.5,
    "token_level_loss": True,
    "loss_agg_mode": "token-mean",
    "tokenizer": "Qwen/Qwen3-8B",
    "special_tokens": ["<|im_start|>", "<|im_end|>"],
    "use_auth_token": True,
    "hub_token": None,
    "password": "",
    "token_file": "/run/secrets/hf",
    "prompt_key": "prompt",
    "reward_fn_key": "data_source",
    "key": "problem_statement",
    "pwd": "/home/me/run",
    "signature": "question -> answer",
    "model": "hf_internal_testing_tiny_llama",
    "policy": "sk-learn-random-forest-classifier",
    "data": "s3://bucket/prefix@v1/part-0.parquet",
    "package": "https://unpkg.com:443/@scope/package@1.0",
    "page": "https://example.com/a@b",
    "repository": "git@github.com:me/repository.git",
    "image": "registry.io/trainer@sha256:0123456789abcdef0123456789abcdef",
    "commit": "0123456789abcdef0123456789abcdef01234567",
    "task": "basic arithmetic problems",
    "command": "python train.py --max-tokens 512 --key prompt --lr 1e-6",
    "log": "step 5: loss=3.0 n_tokens=512 at 12:30:01, KeyError: 'reward'",
}


@pytest.mark.parametrize("name", KEPT)
def test_what_is_no_secret_stays(name: str) -> None:
    assert redact_values({name: KEPT[name]}) == {name: KEPT[name]}
    assert redact(text := f"{name}: {KEPT[name]}" if isinstance(KEPT[name], str) and name == "log" else name) == text


TEXTS = {
    "a password in a URL": ("postgresql://me:hunter2@db/x", "postgresql://***@db/x"),
    "a bearer token": ("Authorization: Bearer abcdef0123456789", "Authorization: Bearer ***"),
    "a named token": ("login(token='abcdef123')", "login(token='***')"),
    "a named key in JSON": ('{"wandb_api_key": "0123abcd"}', '{"wandb_api_key": "***"}'),
    "a named key in JSON in JSON": (r"{\"api_key\": \"01\"}", r"{\"api_key\": \"***\"}"),
    "a key of a known form": ("invalid key hf_abcdefghijklmnop", "invalid key hf_***"),
    "a password": ("password=correct-horse", "password=***"),
    "a password in quotes": ("""password="it's a horse", lr=1""", 'password="***", lr=1'),
    "an option of a command": ("train.py --hf-token abcdef --lr 1", "train.py --hf-token *** --lr 1"),
    "a parameter of a URL": ("https://h/x?token=abcdef&n=1", "https://h/x?token=***&n=1"),
    "a connection string": ("Server=x;Password=horse;n=1", "Server=x;Password=***;n=1"),
    "a variable within a setting": ("env:HF_TOKEN=abcdef", "env:HF_TOKEN=***"),
    "a line of .netrc": (
        "machine api.wandb.ai login user password horse",
        "machine api.wandb.ai login user password ***",
    ),
    "a password that holds what ends a host": ("http://me:ho/rse@h/p", "http://***@h/p"),
    "a URL within a URL": ("http://h/x?next=redis://:horse@r", "http://h/x?next=redis://***@r"),
    "a key that was cut off": ("-----BEGIN RSA PRIVATE KEY-----\nMIIE", "***"),
}


@pytest.mark.parametrize(("text", "redacted"), TEXTS.values(), ids=TEXTS.keys())
def test_a_secret_in_a_text_is_replaced(text: str, redacted: str) -> None:
    assert redact(text) == redacted
    assert redact(redacted) == redacted
    assert redact(f"at my-own-secret: {text}", secrets=["my-own-secret", None]) == f"at ***: {redacted}"


def test_a_configuration_loses_its_secrets_by_name_and_by_form() -> None:
    given = {
        "learning_rate": 1e-6,
        "model_init_kwargs": {"api_key": "k", "dtype": "bfloat16"},
        "servers": ["http://me:word@host:8000"],
        "wandb": {"key": "0123abcd", "project": "math"},
        "credentials": {"user": "me", "pin": 1234},
        "argv": ["train.py", "--hub-token", "abcdef", "--lr", "1e-6"],
        "overrides": [["api_key", "abcdef"], ["lr", 1e-6]],
        "env": [{"name": "HF_TOKEN", "value": "abcdef"}, {"name": "HOME", "value": "/root"}],
        "hf_abcdefghijklmnopqr": 1,
        3: "three",
    }
    assert redact_values(given) == {
        "learning_rate": 1e-6,
        "model_init_kwargs": {"api_key": "***", "dtype": "bfloat16"},
        "servers": ["http://***@host:8000"],
        "wandb": {"key": "***", "project": "math"},
        "credentials": {"user": "***", "pin": "***"},
        "argv": ["train.py", "--hub-token", "***", "--lr", "1e-6"],
        "overrides": [["api_key", "***"], ["lr", 1e-6]],
        "env": [{"name": "HF_TOKEN", "value": "***"}, {"name": "HOME", "value": "/root"}],
        "hf_***": 1,
        3: "three",
    }


NAMES = [
    *("api_key", "apiKey", "OPENAI_API_KEY", "hf_token", "HFToken", "hftoken", "hub-token", "token", "accessToken"),
    *("my_token", "password", "db_passwd", "dbPass", "secret", "client_secret", "aws.secret_access_key", "credentials"),
    *("authorization", "X-Api-Key", "connection_string", "dsn", "jwt", "private_key", "wandb_key", "cookie"),
]
FORMS: tuple[Callable[[str], str], ...] = (
    lambda s: f"hf_{s}{s}",
    lambda s: f"sk-proj-{s}",
    lambda s: f"sk-ant-api03-{s}",
    lambda s: f"ghp_{s}",
    lambda s: f"github_pat_{s}",
    lambda s: f"glpat-{s}",
    lambda s: f"xoxb-{s}",
    lambda s: f"wandb_v1_{s}",
    lambda s: f"AIza{s}{s}",
    lambda s: f"AKIA{s[:16].upper()}",
    lambda s: f"eyJhbGciOiJIUzI1NiJ9.eyJ{s}.{s}",
    lambda s: f"-----BEGIN OPENSSH PRIVATE KEY-----\n{s}\n{s}\n-----END OPENSSH PRIVATE KEY-----",
    lambda s: f"postgresql://trainer:{s}@db.internal:5432/runs",
    lambda s: f"https://{s}@example.com/x",
    lambda s: f"https://hooks.slack.com/services/T0/B0/{s}",
    lambda s: f"https://a.blob.core.windows.net/c?sv=1&sig={s}",
    lambda s: f"Bearer {s}",
    lambda s: f"python train.py --api-key {s} --steps 3",
    lambda s: f"HF_TOKEN={s} python train.py",
    lambda s: f"Config(hf_token='{s}', lr=1e-6)",
)


def with_secrets(choice: random.Random, markers: list[str], *, depth: int = 4) -> Any:
    """Return values with secrets at random places, each of which holds a marker."""

    def secret() -> str:
        markers.append("".join(choice.choices("abcdefghijkmnpqrstuvwxyz23456789", k=19)) + "7")
        return markers[-1]

    def name() -> str:
        return "".join(choice.choices("abcdefgh", k=6))

    if depth == 0 or choice.random() < 0.15:
        text = choice.choice(FORMS)(secret())
        return text if choice.random() < 0.5 else f"{name()} {text} {name()}"
    match choice.randrange(4):
        case 0:
            return [with_secrets(choice, markers, depth=depth - 1) for _ in range(choice.randrange(1, 4))]
        case 1:
            return {choice.choice(NAMES): secret(), name(): 3}
        case _:
            return {name(): with_secrets(choice, markers, depth=depth - 1) for _ in range(choice.randrange(1, 4))}


@pytest.mark.parametrize("seed", range(40))
def test_no_secret_at_a_random_place_is_left(seed: int) -> None:
    markers: list[str] = []
    values = with_secrets(random.Random(seed), markers)
    redacted = redact_values(values)
    encoded = msgspec.json.encode(redacted).decode().lower()
    assert [marker for marker in markers if marker[:16] in encoded] == []
    assert redact_values(redacted) == redacted


HOSTILE = [
    *("a", "a.", "a:", "=", "x]=", "a://", "://", "a://a:", "a@", "hf_", "-sk-a", "-eyJ", "eyJaaaaaaaa.", "\\"),
    *('a="', 'password="', "password='\\\\", "token=", "\t--password\t", "login\ta\tpassword\t", "bearer\t"),
    *("authorization:", "-----BEGIN PRIVATE KEY"),
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_the_time_is_proportional_to_the_length(piece: str) -> None:
    def seconds(n: int) -> float:
        text = (piece * (n // len(piece) + 1))[:n]
        started = time.process_time()
        redact(text)
        return time.process_time() - started

    # Eight times as long: a square would take 64 times.
    assert min(seconds(1 << 17) for _ in range(2)) < 24 * min(seconds(1 << 14) for _ in range(3)) + 0.05


def test_advice_that_names_a_place_for_a_token_stays() -> None:
    advice = "a token is required: 'Authorization: Bearer <token>'"
    assert redact(advice) == advice
    assert "horse" not in redact("Authorization: Bearer horse-12345678")
