"""The service's answers to a trainer: the policy that decides from a step on, and advice."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from trmon_client.core import wire
from trmon_client.core.columns import Columns
from trmon_client.core.policies.decision import Decision, decide
from trmon_client.core.policies.policy import Policy
from trmon_client.core.policies.sequence_statistics import PolicyError
from trmon_client.error_guard import ErrorGuard


class ActivePolicies:
    """Decides with the current policy; refuses and reports an offered policy that cannot be used."""

    def __init__(self, policy: Policy, *, error_guard: ErrorGuard) -> None:
        self.current = policy
        self._losses, self._warn_once = error_guard.losses, error_guard.warn_once
        self._lock = threading.RLock()
        self._offer: tuple[Policy, int] | None = None

    def offer(self, update: wire.PolicyUpdate) -> None:
        """Store a policy update, to be used from its step on."""
        if update.hash in self._losses.refused_policies():
            return
        try:
            policy = Policy.parse(update.spec)
        except PolicyError as error:
            self._refuse(update.hash, str(error))
            return
        if policy.hash != update.hash:
            self._refuse(update.hash, f"its content hashes to {policy.hash} here: another version of the rules")
            return
        with self._lock:
            self._offer = None if policy.hash == self.current.hash else (policy, update.from_step)

    def decide(self, columns: Columns, *, step: int) -> Decision:
        """Return the decision of the current policy, which an offer that is due and usable has replaced.

        Errors: PolicyError when the current policy needs an argument that the columns lack.
        """
        if (offered := self._due(step)) is not None:
            try:
                decision = decide(columns, offered)
            except PolicyError as error:
                self._refuse(offered.hash, str(error))
            else:
                self.current = offered
                return decision
        return decide(columns, self.current)

    def _due(self, step: int) -> Policy | None:
        """Return the offered policy, once, from its step on."""
        with self._lock:
            if self._offer is None or step < self._offer[1]:
                return None
            (policy, _), self._offer = self._offer, None
            return policy

    def _refuse(self, policy_hash: str, why: str) -> None:
        self._losses.add_refused_policy(policy_hash, why)
        text = f"policy {policy_hash} is refused, {self.current.name} stays: {why}"
        self._warn_once.warn(f"policy {policy_hash}", text)


class TrainerAdvice(dict[str, Any]):
    """The fields of the advice by name; fields that an older service does not send are neutral."""

    save_checkpoint = False
    """Whether to save a checkpoint now: in one step an illness, from its first warning on.

    Always false unless the monitor has `checkpoint_on_warning=True`.
    """

    @property
    def should_stop(self) -> bool:
        """Whether the run should end now: its reward collapsed, or its numbers are NaN.

        Always false unless the run's `config` has `stop_on_collapse: True`.
        """
        return self.get("should_stop") is True


VALID_STEPS = 100
"""Trainer steps for which advice is valid, however the trainer numbers them: the service may be unreachable."""


class AdviceCache:
    """Updated in the uploader's thread, read in the trainer's."""

    def __init__(self, *, asks_to_save: bool = False) -> None:
        """Args: asks_to_save: whether the trainer saves a checkpoint when the service warns."""
        self._asks_to_save = asks_to_save
        self._is_asked = False
        self._requests = self._taken = self._shown = 0
        self._saves = False
        self._incident: object = None
        self._newest: TrainerAdvice | None = None
        self._updated_at = 0
        self._n_steps = 0
        self._step: int | None = None

    def update(self, advice: Mapping[str, Any]) -> None:
        """Store advice; the same advice again, as from a service that stopped judging, is not valid for longer."""
        if self._newest is None or advice.get("step") != self._newest.get("step"):
            self._updated_at = self._n_steps
        self._newest = TrainerAdvice(advice)
        is_asked = self._asks_to_save and advice.get("save_checkpoint") is True
        self._requests += is_asked and not self._is_asked
        self._is_asked = is_asked

    def at(self, step: int) -> TrainerAdvice | None:
        """Return the advice at a step of the trainer; None if it is too old.

        A checkpoint is asked for by all batches of a step or by none, whichever of them the trainer reads.
        """
        if step != self._step:
            self._step = step
            self._n_steps += 1
            before, self._shown = self._shown, self._requests
            self._saves = before != self._shown
        newest = self._newest if self._n_steps - self._updated_at <= VALID_STEPS else None
        if newest is not None and self._saves:
            newest = TrainerAdvice(newest)
            newest.save_checkpoint = True
        return newest

    def take_request(self) -> bool:
        """Whether the service has asked for a checkpoint since the last call."""
        before, self._taken = self._taken, self._requests
        return before != self._taken

    def take_incident(self) -> Mapping[str, Any] | None:
        """Return the open incident once when it opens, and once more if it becomes worse."""
        incident = {} if self._newest is None else self._newest.get("incident") or {}
        key = (incident.get("opened_step"), incident.get("severity")) if incident else None
        before, self._incident = self._incident, key
        return incident if incident and key != before else None
