"""The text of messages that merge several runs; those of one run are in the tests of the receivers."""

from __future__ import annotations

from msgspec import structs

from tests.notify.posting import ended_ill, notification
from trmon.domain.alerts.alert import AlertState
from trmon.domain.alerts.notification import Notification
from trmon.domain.identity import RunKey
from trmon.notify.message_text import MAX_CHECKPOINT_LENGTH, SHARED_CAUSE, Link, cause_details, message_text


def stalls(count: int, *, state: AlertState = AlertState.FIRING) -> list[Notification]:
    """Return stalls of runs r0, r1, ..., one every two seconds."""
    return [
        notification(
            run=RunKey("math", f"r{i}"),
            rule="stalled",
            state=state,
            updated_at=100.0 + 2.0 * i,
            summary=f"math/r{i}: no report",
            runbook="Check the newest log lines.",
        )
        for i in range(count)
    ]


def test_stalls_of_several_runs_are_one_text_that_names_them_and_what_to_do() -> None:
    text = message_text(stalls(3))
    [alert] = text.alerts
    assert (text.subject, text.note) == ("[firing] 3 runs stalled within 4 s", None)
    assert text.link == Link(text="The alerts", url="https://trmon.example/alerts?q=stalled")
    assert (alert.status, alert.summary) == ("firing", "3 runs stalled within 4 s")
    assert alert.details == (
        *(f"math/r{i}: no report" for i in range(3)),
        SHARED_CAUSE,
        "Check the newest log lines.",
    )


def test_of_many_runs_ten_are_named_and_the_others_counted() -> None:
    details = message_text(stalls(12)).alerts[0].details
    assert details[9:11] == ("math/r9: no report", "... and 2 more")


def test_the_end_of_several_stalls_has_no_runbook() -> None:
    text = message_text(stalls(3, state=AlertState.RESOLVED))
    assert text.subject == "[resolved] 3 runs are no longer stalled"
    assert text.alerts[0].details == tuple(f"math/r{i}: no report" for i in range(3))


def test_an_incident_says_its_last_good_step_its_remedy_and_the_options_to_set() -> None:
    over = ended_ill()
    cause = structs.replace(over.cause, options={"kl_coef": "0.01"}, runbook_url="https://book/reward_collapse")
    text = message_text([structs.replace(over, status=AlertState.FIRING, ended="", cause=cause)])
    assert text.subject == "[firing] math/grpo: reward collapse"
    assert text.alerts[0].details == (
        "Last good step: 6.",
        "In the next run, start from the checkpoint of step 6.",
        "Set kl_coef=0.01.",
        "Runbook: https://book/reward_collapse",
    )


def test_an_incident_that_is_sent_after_its_run_ended_is_for_the_next_run() -> None:
    over = ended_ill()
    cause = structs.replace(over.cause, remedy="Stop and go back.")
    text = message_text([structs.replace(over, status=AlertState.FIRING, cause=cause)])
    assert text.alerts[0].details == ("Last good step: 6.", "For the next run: Stop and go back.")


def test_an_incident_names_the_checkpoint_to_go_back_to_in_one_line() -> None:
    over = ended_ill()
    said = f"Checkpoint to go back to: /c/\n{'x' * 2000} (step 6)."
    cause = structs.replace(over.cause, checkpoint=said, checkpoint_step=6)
    one = structs.replace(over, status=AlertState.FIRING, ended="", cause=cause)
    text = message_text([one])
    line = text.alerts[0].details[1]
    assert line.startswith("Checkpoint to go back to: /c/ xxx")
    assert len(line) == MAX_CHECKPOINT_LENGTH
    assert cause_details(one)["checkpoint"] == line
