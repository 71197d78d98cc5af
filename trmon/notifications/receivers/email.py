"""E-mail: sends the alerts of a run that are due together as one message through a mail server."""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from email.message import EmailMessage

from trmon.domain.alerts.notification import Notification
from trmon.notifications.receivers import destination_check
from trmon.notifications.receivers.email_message import email_message
from trmon.notifications.receivers.http_post import TIMEOUT_SECONDS
from trmon.notifications.receivers.plain_text import one_line
from trmon.notifications.receivers.receiver import DeliveryOutcome, DeliveryResult
from trmon.notifications.receivers.smtp_connection import MailServer, SmtpConnection

MAX_REASON_LENGTH = 200

Refused = Mapping[str, tuple[int, bytes]]
"""The answer of a mail server for each address that it refused."""


class Email:
    """Sends one message to all recipients. Errors: OSError if the CA file cannot be read."""

    repeat_seconds = None
    is_grouping = True
    merges_runs = True

    def __init__(
        self,
        server: MailServer,
        *,
        sender: str,
        recipients: Sequence[str],
        allow_hosts: frozenset[str] = frozenset(),
        timeout_seconds: float = TIMEOUT_SECONDS,
        resolve: destination_check.Resolve = destination_check.resolve_host,
    ) -> None:
        self._server = server
        self._sender = sender
        self._recipients = tuple(recipients)
        self._is_allowed = server.host in allow_hosts
        self._timeout_seconds = timeout_seconds
        self._resolve = resolve
        self._tls = server.tls_context()

    def deliver(self, notifications: Sequence[Notification], *, now: float) -> DeliveryResult:
        """Send one message. Answers 5xx are refusals; answers 4xx and network errors may be retried."""
        message = email_message(notifications, sender=self._sender, recipients=self._recipients, now=now)
        try:
            return _result_of_refusals(self._send(message), n_recipients=len(self._recipients))
        except destination_check.DestinationForbidden as error:
            return DeliveryResult(DeliveryOutcome.REFUSED, str(error))
        except smtplib.SMTPRecipientsRefused as error:
            return _result_of_refusals(error.recipients, n_recipients=len(error.recipients))
        except smtplib.SMTPNotSupportedError as error:
            return DeliveryResult(DeliveryOutcome.REFUSED, _reason(str(error)))
        except smtplib.SMTPResponseException as error:
            return DeliveryResult(_outcome(error.smtp_code), f"answered {_answer(error.smtp_code, error.smtp_error)}")
        except ssl.SSLCertVerificationError as error:
            return DeliveryResult(DeliveryOutcome.RETRY, f"certificate not accepted: {error.verify_message}")
        except smtplib.SMTPServerDisconnected as error:
            return DeliveryResult(DeliveryOutcome.RETRY, _reason(str(error)))
        except (OSError, smtplib.SMTPException) as error:
            return DeliveryResult(DeliveryOutcome.RETRY, type(error).__name__)

    def close(self) -> None:
        """Do nothing: each message has a connection of its own."""

    def _send(self, message: EmailMessage) -> Refused:
        addresses = destination_check.checked_addresses(
            self._server.host,
            self._server.port,
            name="mail server",
            is_allowed=self._is_allowed,
            resolve=self._resolve,
        )
        connection = SmtpConnection(
            self._server, addresses=addresses, tls=self._tls, timeout_seconds=self._timeout_seconds
        )
        try:
            refused = connection.send_message(message, from_addr=self._sender, to_addrs=self._recipients)
            with suppress(OSError, smtplib.SMTPException):  # the message is accepted, whatever happens to the goodbye
                connection.quit()
            return refused
        finally:
            connection.close()


def _result_of_refusals(refused: Refused, *, n_recipients: int) -> DeliveryResult:
    """Return the result of a message that some recipients did not get; if one got it, a retry would repeat it there."""
    if not refused:
        return DeliveryResult(DeliveryOutcome.DELIVERED)
    answers = "; ".join(f"{name}: {_answer(*answer)}" for name, answer in sorted(refused.items()))
    reason = _reason(f"{len(refused)} of {n_recipients} addresses refused: {answers}")
    if len(refused) < n_recipients:
        return DeliveryResult(DeliveryOutcome.DELIVERED, reason)
    may_succeed = any(_outcome(code) is DeliveryOutcome.RETRY for code, _ in refused.values())
    return DeliveryResult(DeliveryOutcome.RETRY if may_succeed else DeliveryOutcome.REFUSED, reason)


def _outcome(code: int) -> DeliveryOutcome:
    """Return the outcome of an SMTP answer: 5yz is permanent. Source: RFC 5321, section 4.2.1."""
    return DeliveryOutcome.REFUSED if 500 <= code < 600 else DeliveryOutcome.RETRY


def _answer(code: int, text: bytes | str) -> str:
    return _reason(f"{code} {text.decode(errors='replace') if isinstance(text, bytes) else text}")


def _reason(text: str) -> str:
    return one_line(text, max_length=MAX_REASON_LENGTH)
