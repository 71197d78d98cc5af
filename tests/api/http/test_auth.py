"""Authentication: open on loopback until a token exists, then bearer tokens with scope, project and expiry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.fixtures.command import run_here
from tests.fixtures.loops import run
from tests.fixtures.running_service import Serve, bearer, make_token
from tests.fixtures.service import ThreadedService
from trmon.api.http.auth import Authenticator, check_bind, digest_of, new_secret
from trmon.config.settings import Settings
from trmon.domain.access import EVERYTHING, Scope, Token
from trmon.domain.errors import NotReady, Unauthenticated

RUNS = "/api/v1/runs"


class FewTokens:
    """Token look-up over a dictionary; counts the look-ups."""

    def __init__(self, *tokens: Token) -> None:
        self.tokens = {token.digest: token for token in tokens}
        self.looks = 0
        self.used: list[tuple[str, float]] = []

    def by_digest(self, digest: str) -> Token | None:
        self.looks += 1
        return self.tokens.get(digest)

    def ever_created(self) -> bool:
        self.looks += 1
        return bool(self.tokens)

    def mark_used(self, token: Token, *, now: float) -> None:
        self.used.append((token.name, now))


def a_token(secret: str, *, expires_at: float | None = None) -> Token:
    scopes = frozenset({Scope.READ})
    return Token(
        id=1, name="t", digest=digest_of(secret), scopes=scopes, project="math", created_at=0.0, expires_at=expires_at
    )


@pytest.fixture(scope="module")
def closed_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ThreadedService, str]]:
    """A service with an admin token for the tests that leave it as it is, and the token."""
    service = ThreadedService(tmp_path_factory.mktemp("closed") / "data")
    with service.client() as client:
        yield service, make_token(client, "root", Scope.ADMIN)
    service.stop()


@pytest.fixture
def closed(closed_service: tuple[ThreadedService, str]) -> Iterator[httpx.Client]:
    """A client of the file's service with the admin token."""
    service, secret = closed_service
    with service.client(headers=bearer(secret)) as client:
        yield client


def revoke_all(service: ThreadedService) -> None:
    tokens = service.app.state.components.store.tokens
    for token in tokens.list(access=EVERYTHING):
        tokens.revoke(token.name, access=EVERYTHING, project=token.project, now=1.0, force=True).result(10)
    service.app.state.components.authenticator.clear_cache()


def test_open_on_loopback_until_the_first_token(client: httpx.Client) -> None:
    assert client.get(RUNS).status_code == 200
    secret = make_token(client, "root", Scope.ADMIN)
    refused = client.get(RUNS)
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    assert "trmon token create" in refused.json()["detail"]
    assert client.get(RUNS, headers=bearer(secret)).status_code == 200


def test_an_unknown_token_is_refused_and_not_repeated(closed: httpx.Client) -> None:
    for header in ("Bearer", "Bearer wrong", "Basic cm9vdA==", "trmon", "Bearer \xff"):
        answer = closed.get(RUNS, headers={"Authorization": header.encode("latin-1")})
        secret = header.partition(" ")[2] or "no secret"
        assert (answer.status_code, secret in answer.text) == (401, False)


def test_a_scope_limits_what_a_token_may_do(closed: httpx.Client) -> None:
    ingest = bearer(make_token(closed, "sender", Scope.INGEST))
    read = bearer(make_token(closed, "reader", Scope.READ))
    assert closed.get(RUNS, headers=ingest).status_code == 403
    assert closed.post("/api/v1/reports", headers=read).status_code == 403
    assert closed.post("/api/v1/tokens", json={"name": "x", "scopes": ["admin"]}, headers=read).status_code == 403
    assert closed.get(RUNS, headers=read).status_code == 200


def test_a_token_is_accepted_in_the_header_only(closed: httpx.Client) -> None:
    secret = closed.headers.pop("Authorization").removeprefix("Bearer ")
    assert closed.get(RUNS, params={"token": secret, "access_token": secret}).status_code == 401


def test_no_secret_is_listed_or_stored(service: ThreadedService, admin: httpx.Client) -> None:
    secret = admin.headers["Authorization"].removeprefix("Bearer ")
    assert secret not in admin.get("/api/v1/tokens").text
    service.stop()
    service.start()
    files = b"".join(path.read_bytes() for path in service.data_dir.iterdir())
    assert secret.encode() not in files
    assert digest_of(secret).encode() in files


def test_probes_and_the_page_need_no_token(closed: httpx.Client) -> None:
    del closed.headers["Authorization"]
    assert [closed.get(path).status_code for path in ("/healthz", "/readyz", "/")] == [200, 200, 200]
    assert closed.get("/metrics").status_code == 401


async def _access(authenticator: Authenticator, header: str | None, *, now: float = 1.0) -> object:
    headers = {} if header is None else {"authorization": header}
    try:
        return await authenticator.access(headers, now=now)
    except Unauthenticated:
        return "refused"


@pytest.mark.parametrize(
    ("expires_at", "now", "lives"),
    [(None, 1e9, True), (100.0, 99.9, True), (100.0, 100.0, False)],
    ids=["never ends", "not yet ended", "ended"],
)
def test_a_token_expires_at_its_time(expires_at: float | None, now: float, *, lives: bool) -> None:
    authenticator = Authenticator(FewTokens(a_token("s", expires_at=expires_at)), is_exposed=False)
    found = run(_access(authenticator, "Bearer s", now=now))
    assert (found != "refused") is lives


def test_look_ups_are_cached_for_two_seconds() -> None:
    tokens = FewTokens(a_token("s"))
    authenticator = Authenticator(tokens, is_exposed=False)
    for now in (0.0, 1.9):
        run(_access(authenticator, "Bearer s", now=now))
    assert tokens.looks == 1
    tokens.tokens.clear()
    assert run(_access(authenticator, "Bearer s", now=2.1)) == "refused"


def test_a_valid_token_is_marked_as_used_when_it_is_looked_up() -> None:
    tokens = FewTokens(a_token("s"), a_token("old", expires_at=0.5))
    authenticator = Authenticator(tokens, is_exposed=False)
    for header in ("Bearer s", "Bearer s", "Bearer old", "Bearer unknown"):
        run(_access(authenticator, header))
    assert tokens.used == [("t", 1.0)]


def test_a_service_stays_closed_after_its_last_token_is_revoked(service: ThreadedService, admin: httpx.Client) -> None:
    revoke_all(service)
    assert admin.get(RUNS).status_code == 401
    del admin.headers["Authorization"]
    refused = admin.get(RUNS)
    assert refused.status_code == 401
    assert "trmon token create" in refused.json()["detail"]
    service.restart()
    with service.client() as client:
        assert client.get(RUNS).status_code == 401
        assert client.post("/api/v1/tokens", json={"name": "me", "scopes": ["admin"]}).status_code == 401


def test_access_to_the_database_recovers_a_service_without_tokens(
    service: ThreadedService, admin: httpx.Client
) -> None:
    revoke_all(service)
    made = run_here("token", "create", "root", "--scope", "admin", data_dir=str(service.data_dir))
    assert made.exit_code == 0, made.stderr
    assert admin.get(RUNS, headers=bearer(made.stdout.strip())).status_code == 200


@pytest.mark.parametrize("header", ["Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP"])
def test_a_request_that_a_proxy_forwards_needs_a_token_even_before_the_first_one(
    shared: httpx.Client, header: str
) -> None:
    assert shared.get(RUNS, headers={header: "192.0.2.7"}).status_code == 401
    assert shared.get(RUNS).status_code == 200


def test_beyond_loopback_a_token_is_required() -> None:
    assert run(_access(Authenticator(FewTokens(), is_exposed=True), None)) == "refused"
    assert run(_access(Authenticator(FewTokens(), is_exposed=False), None)) == EVERYTHING


@pytest.mark.parametrize(
    "settings",
    [{"host": "0.0.0.0"}, {"allow_hosts": "localhost,trmon.example"}, {"public_url": "trmon.example"}],
    ids=str,
)
def test_an_exposed_service_without_tokens_is_refused_with_the_command_that_creates_one(
    settings: dict[str, str],
) -> None:
    with pytest.raises(NotReady, match="trmon token create"):
        check_bind(Settings(**settings), FewTokens())
    check_bind(Settings(**settings), FewTokens(a_token("s")))
    for local in ({}, {"host": "::1"}, {"allow_hosts": "[::1],LOCALHOST"}, {"public_url": "http://127.0.0.1:8642/"}):
        check_bind(Settings(**local), FewTokens())


def test_a_bind_beyond_loopback_starts_with_a_token_alone(serve: Serve, tmp_path: Path) -> None:
    with pytest.raises(NotReady, match="needs a token"):
        ThreadedService(tmp_path / "open", host="0.0.0.0")
    service = serve()
    with service.client() as client:
        secret = make_token(client, "root", Scope.ADMIN)
    service.restart(host="0.0.0.0")
    url = f"http://127.0.0.1:{httpx.URL(service.url).port}/api/v1/runs"
    assert httpx.get(url, headers=bearer(secret), trust_env=False, timeout=60).status_code == 200
    assert httpx.get(url, trust_env=False, timeout=60).status_code == 401


def test_secrets_are_long_random_and_recognisable() -> None:
    secrets = {new_secret() for _ in range(100)}
    assert len(secrets) == 100
    assert all(secret.startswith("trmon_") and len(secret) > 45 for secret in secrets)
