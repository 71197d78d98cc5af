"""The limits of a message's text; what each kind says is in the golden files."""

from __future__ import annotations

from msgspec import structs

from tests.notify.posting import ended_ill, notification
from trmon.domain.alerts.alert import AlertState
from trmon.domain.identity import RunKey
from trmon.notify.message_text import MAX_CHECKPOINT_LENGTH, cause_details, message_text


def test_of_many_runs_ten_are_named_and_the_others_counted() -> None:
    runs = [RunKey("math", f"r{i}") for i in range(12)]
    details = message_text([notification(run=run, summary=f"{run}: no report") for run in runs]).alerts[0].details
    assert details[9:11] == ("math/r9: no report", "... and 2 more")


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
