"""Apprise: sends messages through one of the services that the library supports, such as Teams or Telegram."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from trmon.domain.alerts.notification import Notification, NotifiedState
from trmon.domain.errors import NotReady, needs_package
from trmon.domain.severity import Severity
from trmon.notify.message_text import message_text, one_line, plain_text
from trmon.notify.receiver import TIMEOUT_SECONDS, DeliveryOutcome, DeliveryResult, Receiver, result_of_status

if TYPE_CHECKING:
    from apprise import NotifyBase
    from apprise.common import NotifyType

MAX_REASON_LENGTH = 200
MIN_SECRET_LENGTH = 3
"""Shorter parts of a URL are not secrets, and hiding them would make a reason unreadable."""
DEADLINE_TIMEOUTS = 3.0
"""A service that waits between requests, or sends several, gets this many timeouts in all."""
STATUS = re.compile(r"\berror=(\d{3})\b")
CONNECTION_ERROR = re.compile(r"connection error", re.IGNORECASE)


class Apprise(Receiver):
    """Sends each message to the service of one Apprise URL, which holds its credentials.

    Errors: NotReady if the library is not installed, or does not understand the URL.
    """

    def __init__(self, url: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._service = _service_of(url, timeout_seconds=timeout_seconds)
        # Everything in the URL that may be a credential, the longest first.
        _, _, rest = url.partition("://")
        written = {*re.split(r"[/:@?&=,#]", rest), rest}
        parts = written | {unquote(part) for part in written}
        self._secrets = sorted(
            (part for part in parts if len(part) >= MIN_SECRET_LENGTH), key=lambda part: (-len(part), part)
        )
        self._lock = Lock()

    def deliver(self, notifications: Sequence[Notification], *, now: float) -> DeliveryResult:  # noqa: ARG002 - the port's signature
        """Send one message; each service limits the rate, so messages are sent one after the other."""
        from apprise import Apprise as Sender
        from apprise import AppriseResultStatus, NotifyFormat

        with self._lock:
            sender = Sender(asset=self._service.asset)
            sender.add(self._service)
            result = sender.notify(**apprise_message(notifications), body_format=NotifyFormat.TEXT)
        if result:
            return DeliveryResult(DeliveryOutcome.DELIVERED)
        if result.status is AppriseResultStatus.TIMEOUT:
            return DeliveryResult(DeliveryOutcome.RETRY, "no answer in time")
        said = "; ".join(entry.message for service in result for entry in service.logs())
        status = STATUS.search(said)
        if CONNECTION_ERROR.search(said) and status is None:
            return DeliveryResult(DeliveryOutcome.RETRY, "no connection")
        for secret in self._secrets:  # the library quotes parts of the URL
            said = said.replace(secret, "****")
        reason = one_line(said, max_length=MAX_REASON_LENGTH) or "Apprise gives no reason"
        outcome = DeliveryOutcome.RETRY if status is None else result_of_status(int(status[1])).outcome
        return DeliveryResult(outcome, reason)


def apprise_message(notifications: Sequence[Notification]) -> dict[str, Any]:
    """Return the title, the body and the kind of a message."""
    text = message_text(notifications)
    return {
        "title": _without_mentions(one_line(text.subject, max_length=MAX_REASON_LENGTH)),
        "body": _without_mentions(plain_text(text)),
        "notify_type": _notify_type(notifications),
    }


def _service_of(url: str, *, timeout_seconds: float) -> NotifyBase:
    with needs_package("apprise", said="needs"):
        from apprise import Apprise as Sender
        from apprise import AppriseAsset, NotifyBase
        from apprise.common import OverflowMode
    # Its lines may quote parts of a URL; results carry them, and are cleaned here.
    logging.getLogger("apprise").propagate = False
    logging.getLogger("apprise").addHandler(logging.NullHandler())
    asset = AppriseAsset(
        app_id="trmon",
        async_mode=False,
        http_redirects=False,
        pem_autogen=False,
        pgp_autogen=False,
        service_timeout=DEADLINE_TIMEOUTS * timeout_seconds,
    )
    service = Sender.instantiate(url, asset=asset)
    if not isinstance(service, NotifyBase):
        raise NotReady("is not a URL that Apprise understands; `apprise --details` lists the services and their URLs")
    service.redirects = False
    service.socket_connect_timeout = service.socket_read_timeout = timeout_seconds
    if service.overflow_mode is OverflowMode.UPSTREAM:  # a service would refuse a text that is too long
        service.overflow_mode = OverflowMode.TRUNCATE
    return service


def _notify_type(notifications: Sequence[Notification]) -> NotifyType:
    from apprise.common import NotifyType

    states = {notification.state for notification in notifications}
    firing = [notification for notification in notifications if notification.state is NotifiedState.FIRING]
    if not firing:
        if NotifiedState.ENDED_OPEN in states:
            return NotifyType.WARNING
        return NotifyType.INFO if NotifiedState.ACKNOWLEDGED in states else NotifyType.SUCCESS
    pages = any(notification.alert.severity is Severity.PAGE for notification in firing)
    return NotifyType.FAILURE if pages else NotifyType.WARNING


def _without_mentions(text: str) -> str:
    """Return text that mentions nobody, because a run may have any name, for example @everyone."""
    return text.replace("@", "@\u200b").replace("<!", "<\u200b!")
