"""Sending to services that are unreachable, slow, busy or broken: no call waits, and no loss is silent."""

from __future__ import annotations

import gc
import logging
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.client.server import ACCEPT, HANG, HANG_UP, PATIENCE_SECONDS, Answer, Peer, problem
from tests.client.trainer import batch, settings, spooled, steps
from trmon_client.config.settings import Limits
from trmon_client.core import wire
from trmon_client.error_guard import WarnOnce
from trmon_client.monitor import Monitor
from trmon_client.sending.encoder import MessageQueue, PendingMessage
from trmon_client.sending.transport import HttpTransport

BUSY = problem(429, "too many", **{"Retry-After": "0.05"})
AWAY = {"connection closed": HANG_UP, "too many requests": BUSY, "no answer in time": HANG}


@pytest.mark.parametrize("answer", AWAY.values(), ids=AWAY.keys())
def test_a_failed_upload_is_repeated_until_acknowledged_once_and_in_order(tmp_path: Path, answer: Answer) -> None:
    n_failures, limits = (1, {"read_timeout_seconds": 0.3}) if answer is HANG else (4, {})
    with Peer([answer] * n_failures) as peer, Monitor(settings(tmp_path, url=peer.url, limits=limits)) as monitor:
        for step in range(5):
            monitor.log_batch(step=step, **batch())
        peer.wait_for(wire.Report, n=5)
    assert peer.steps == [0, 1, 2, 3, 4]
    assert len(peer.requests) > n_failures
    assert peer.of(wire.Finish)[0].losses.dropped == {}
    assert spooled(tmp_path) == []


def test_without_the_service_reports_wait_and_arrive_later(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Peer(otherwise=Answer(503)) as peer, Monitor(settings(tmp_path, url=peer.url)) as monitor:
        for step in range(20):
            monitor.log_batch(step=step, **batch())
        peer.wait_until(lambda peer: len(peer.requests) >= 5)
        assert peer.steps == []
        assert spooled(tmp_path)
        peer.otherwise = Answer()
        peer.wait_for(wire.Report, n=20)
        monitor.log_batch(step=20, **batch())
    assert peer.steps == list(range(21))
    assert list((tmp_path / "spool").rglob("*.seg")) == []
    said = capsys.readouterr().err
    assert said.count("cannot be reached") == 1
    assert said.count("answers again") == 1
    assert "trmon ingest" not in said, "nothing is left"


def test_with_a_denied_token_all_reports_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Peer(otherwise=problem(401, "unknown token")) as peer:
        with Monitor(settings(tmp_path, url=peer.url, token="s3cret")) as monitor:
            for step in range(4):
                monitor.log_batch(step=step, **batch())
            peer.wait_until(lambda peer: len(peer.requests) >= 3)
        assert {request.headers["Authorization"] for request in peer.requests} == {"Bearer s3cret"}
    assert steps(spooled(tmp_path)) == [0, 1, 2, 3]
    said = capsys.readouterr().err
    assert said.count("TRMON_TOKEN") == 1
    assert "unknown token" in said
    assert said.count("`trmon ingest ") == 1
    assert f"`trmon ingest {settings(tmp_path).run_spool_dir}` sends them" in said
    assert "s3cret" not in said


def test_a_refused_message_is_dropped_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Peer([problem(422, "columns.n_tokens: is required")]) as peer:
        with Monitor(settings(tmp_path, url=peer.url, limits={"bundle_messages": 1})) as monitor:
            for step in range(3):
                monitor.log_batch(step=step, **batch())
        assert peer.of(wire.Start) == []
        assert peer.steps == [0, 1, 2]
        assert peer.of(wire.Finish)[0].losses.dropped in ({}, {"refused": 1})
    assert capsys.readouterr().err.count("columns.n_tokens: is required") == 1


def test_a_refused_message_does_not_block_its_bundle(tmp_path: Path) -> None:
    def refuse_step_two(message: Any) -> wire.Ack:
        is_bad = isinstance(message, wire.Report) and message.step == 2
        return wire.Ack("invalid", problem="step: is bad") if is_bad else wire.Ack("stored")

    with Peer(otherwise=Answer(503), acknowledge=refuse_step_two) as peer:
        with Monitor(settings(tmp_path, url=peer.url)) as monitor:
            for step in range(4):
                monitor.log_batch(step=step, **batch())
            # Only now that all of them wait is a bundle too large, and not a message.
            peer.wait_until(lambda peer: any(len(request.messages) > 4 for request in peer.requests))
            peer.script.extend([HANG_UP, Answer(413), Answer(413)])
            peer.otherwise = ACCEPT
            peer.wait_for(wire.Report, n=4)
            monitor.pause()
            peer.wait_for(wire.Pause)
        assert peer.steps == [0, 1, 2, 3]
        assert peer.of(wire.Finish)[0].losses.dropped == {"refused": 1}


def test_a_conflict_is_counted_and_warned_about(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Peer(acknowledge=lambda _: wire.Ack("conflict", problem="another payload")) as peer:
        with Monitor(settings(tmp_path, url=peer.url)) as monitor:
            monitor.log_batch(step=0, **batch())
            peer.wait_for(wire.Report)
            monitor.pause()
            peer.wait_for(wire.Pause)
        dropped = peer.of(wire.Finish)[0].losses.dropped
    assert dropped.keys() == {"conflict"}
    assert dropped["conflict"] >= 2
    assert capsys.readouterr().err.count("another payload") == 1


def test_close_returns_in_time_and_spools_a_hanging_upload(tmp_path: Path) -> None:
    with Peer(otherwise=HANG) as peer:
        monitor = Monitor(settings(tmp_path, url=peer.url))
        monitor.log_batch(step=0, **batch())
        peer.wait_until(lambda peer: len(peer.requests) == 1)
        monitor.close(timeout=6.0)
        kept = spooled(tmp_path)
    assert steps(kept) == [0]
    assert isinstance(kept[-1], wire.Finish)


def test_heartbeats_are_sent_and_never_spooled(tmp_path: Path) -> None:
    with Peer() as peer, Monitor(settings(tmp_path, url=peer.url, limits={"heartbeat_seconds": 0.01})) as monitor:
        monitor.log_batch(step=0, **batch())
        peer.wait_for(wire.Heartbeat, n=3)
        peer.otherwise = Answer(503)
        n_requests = len(peer.requests)
        monitor.log_batch(step=1, **batch())
        peer.wait_until(lambda peer: len(peer.requests) > n_requests + 4)
    kept = spooled(tmp_path)
    assert steps(kept) == [1]
    assert not any(isinstance(message, wire.Heartbeat) for message in kept)


def test_requests_do_not_appear_in_the_trainers_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with Peer([HANG_UP, Answer(503)]) as peer, Monitor(settings(tmp_path, url=peer.url)) as monitor:
        monitor.log_batch(step=0, **batch())
        peer.wait_for(wire.Report)
    logging.getLogger("urllib3").debug("one of the trainer's own")
    assert [record.getMessage() for record in caplog.records] == ["one of the trainer's own"]


PROXIES = [("ALL_PROXY", "gopher://proxy:70"), ("ALL_PROXY", "socks5://proxy"), ("HTTP_PROXY", "http://proxy:port")]


@pytest.mark.parametrize(("variable", "value"), PROXIES)
def test_with_an_unusable_proxy_all_reports_are_spooled(
    variable: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(variable, value)
    with Monitor(settings(tmp_path, url="http://192.0.2.1:8642")) as monitor:
        monitor.log_batch(step=0, **batch())
    assert steps(spooled(tmp_path)) == [0]
    assert variable in capsys.readouterr().err


def test_an_answer_after_close_ends_the_uploader(tmp_path: Path) -> None:
    is_asked, is_late = threading.Event(), threading.Event()

    def acknowledge(_: Any) -> wire.Ack:
        is_asked.set()
        is_late.wait(PATIENCE_SECONDS)
        return wire.Ack("stored")

    with Peer(acknowledge=acknowledge) as peer:
        of_others = set(threading.enumerate())
        monitor = Monitor(settings(tmp_path, url=peer.url, limits={"read_timeout_seconds": PATIENCE_SECONDS}))
        monitor.log_batch(step=0, **batch())
        assert is_asked.wait(PATIENCE_SECONDS)
        monitor.close(timeout=0.2)
        threads = {thread.name: thread for thread in threading.enumerate() if thread not in of_others}
        uploader = threads["trmon-uploader"]
        if "trmon-encoder" in threads:
            threads["trmon-encoder"].join(PATIENCE_SECONDS)
        is_late.set()
        uploader.join(PATIENCE_SECONDS)
        assert not uploader.is_alive()
        assert len(peer.requests) == 1


@pytest.mark.parametrize("timeout", [None, 1e12, 0])
def test_close_may_wait_as_long_as_it_takes_or_for_nothing(tmp_path: Path, timeout: float | None) -> None:
    with Peer([Answer(503)] * 2) as peer:
        monitor = Monitor(settings(tmp_path, url=peer.url))
        monitor.log_batch(step=0, **batch())
        peer.wait_for(wire.Report)
        monitor.close(timeout=timeout)
        assert len(peer.of(wire.Finish)) == 1 or timeout == 0
        assert monitor.error_guard.losses.snapshot() == {}


def transports() -> list[HttpTransport]:
    """Return the transports that exist in this process."""
    return [found for found in gc.get_objects() if type(found) is HttpTransport]


def test_without_a_free_thread_nothing_is_created_twice_and_the_next_call_tries_again(tmp_path: Path) -> None:
    before, made = transports(), []
    with socket.socket() as unbound:
        unbound.bind(("127.0.0.1", 0))
        monitor = Monitor(settings(tmp_path, url=f"http://127.0.0.1:{unbound.getsockname()[1]}"))
        threading.stack_size(1 << 46)  # more than there is: no thread can start
        try:
            for step in range(3):
                assert monitor.log_batch(step=step, **batch()).mask.all()
                made.append([found for found in transports() if not any(found is old for old in before)])
        finally:
            threading.stack_size(0)
        assert [len(found) for found in made] == [1, 1, 1]
        assert made[0][0] is made[1][0] is made[2][0]
        monitor.log_batch(step=3, **batch())
        monitor.close()
    assert steps(spooled(tmp_path)) == [3]


def test_a_trainer_that_changes_its_directory_keeps_one_spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monitor = Monitor(settings(tmp_path, spool_dir="spool"))
    monitor.log_batch(step=0, **batch())
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monitor.log_batch(step=1, **batch())
    monitor.close()
    assert steps(spooled(tmp_path)) == [0, 1]


def message(size_bytes: int = 1) -> PendingMessage:
    return PendingMessage(lambda _identity, _losses: pytest.fail("nothing builds here"), size_bytes=size_bytes)


def test_a_queue_is_full_by_count_or_bytes_and_accepts_more_after_a_get() -> None:
    queue = MessageQueue(Limits(queue_reports=2))
    assert [queue.put(message()) for _ in range(3)] == [True, True, False]
    queue.get()
    assert queue.put(message())
    queue = MessageQueue(Limits(queue_bytes=10))
    assert [queue.put(message(size)) for size in (6, 5, 4)] == [True, False, True]


def test_a_closed_queue_returns_what_it_holds_and_its_last_message_which_always_fits() -> None:
    queue = MessageQueue(Limits(queue_reports=1))
    first, last = message(), message()
    queue.put(first)
    queue.close(last)
    queue.close(message())
    assert [queue.get(), queue.get(), queue.get(), queue.get()] == [first, last, None, None]
    assert not queue.put(message())


def test_a_warning_is_printed_once_with_its_control_characters_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    warnings = WarnOnce()
    for key in ("a", "b", "a"):
        warnings.warn(key, f"{key}: no\x1b[2J\x07\r\x9b access\u202e, für λ")
    shown = "no\\x1b[2J\\x07\\r\\x9b access\\u202e, für λ"
    assert capsys.readouterr().err == f"trmon: a: {shown}\ntrmon: b: {shown}\n"
