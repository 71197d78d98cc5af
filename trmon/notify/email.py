"""E-mail: sends the alerts of a run that are due together as one message, over an encrypted connection."""

from __future__ import annotations

import hashlib
import smtplib
import socket
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate
from html import escape

from trmon.config.settings import Settings
from trmon.domain.alerts.notification import Notification
from trmon.domain.errors import NotReady
from trmon.notify import receiver
from trmon.notify.message_text import MessageText, message_key, message_text, one_line, plain_text
from trmon.notify.receiver import DeliveryOutcome, DeliveryResult

MAX_SUBJECT_LENGTH = 200
MAX_REFERENCES = 20
MAX_REASON_LENGTH = 200
Refused = Mapping[str, tuple[int, bytes]]
"""The answer of a mail server for each address that it refused."""


def email_message(
    notifications: Sequence[Notification], *, sender: str, recipients: Sequence[str], now: float
) -> EmailMessage:
    """Return the e-mail of notifications; a retry has the same Message-ID.

    Every message about an episode refers to the same id, so that mail programs show them as one thread.
    Source: RFC 5322, section 3.6.4; RFC 3834 (Auto-Submitted).
    """
    text, domain = message_text(notifications), sender.rpartition("@")[2]
    episodes = dict.fromkeys(
        f"{one.run.project}/{one.run.run}:{one.alert.identity}:{one.alert.since_at:.3f}" for one in notifications
    )
    message = EmailMessage(policy=SMTP)
    message["From"] = Address("trmon", addr_spec=sender)
    message["To"] = ", ".join(recipients)
    message["Subject"] = one_line(text.subject, max_length=MAX_SUBJECT_LENGTH)
    message["Date"] = formatdate(now)
    message["Message-ID"] = _id_of("message", message_key(notifications), domain=domain)
    message["References"] = " ".join(_id_of("episode", key, domain=domain) for key in list(episodes)[:MAX_REFERENCES])
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(plain_text(text), cte="quoted-printable")
    picture_id = _id_of("picture", message_key(notifications), domain=domain)
    message.add_alternative(_html(text, picture_id=picture_id[1:-1]), subtype="html", cte="quoted-printable")
    if text.picture is not None:
        *_, html = message.iter_parts()
        assert isinstance(html, EmailMessage)
        html.add_related(text.picture.png, "image", "png", cid=picture_id, disposition="inline", filename="story.png")
    return message


BODY = "font:15px/1.45 system-ui,sans-serif;color:#1c2024;max-width:480px"
BUTTON = "display:inline-block;margin:0 6px 6px 0;padding:6px 14px;border:1px solid #2f5fb3;border-radius:6px"
"""Mail programs read the style of each element only."""


def _html(text: MessageText, *, picture_id: str) -> str:
    paragraphs = []
    for alert in text.alerts:
        details = "".join(f"<br>\n{escape(line)}" for line in alert.details)
        paragraphs.append(f"<p><strong>{escape(alert.status)}: {escape(alert.summary)}</strong>{details}</p>\n")
    if text.note is not None:
        paragraphs.append(f"<p>{escape(text.note)}</p>\n")
    if text.link is not None:
        links = (f'<a style="{BUTTON}" href="{escape(one.url)}">{escape(one.text)}</a>\n' for one in text.links)
        paragraphs.append(f"<p>\n{''.join(links)}</p>\n")
    if text.picture is not None:
        words = escape(text.picture.words)
        paragraphs.append(f'<p><img src="cid:{picture_id}" alt="{words}" width="480" style="max-width:100%"></p>\n')
    return f'<!DOCTYPE html>\n<html><body style="{BODY}">\n{"".join(paragraphs)}</body></html>\n'


def _id_of(kind: str, key: str, *, domain: str) -> str:
    return f"<trmon.{kind}.{hashlib.sha256(key.encode()).hexdigest()[:32]}@{domain}>"


class SmtpConnection(smtplib.SMTP):
    """Connects to the first of `addresses` that accepts; the certificate is verified against the server's host name.

    Errors: OSError, SMTPException.
    """

    def __init__(self, settings: Settings, *, addresses: Sequence[str], tls: ssl.SSLContext) -> None:
        self._addresses = addresses
        self._implicit_tls = tls if settings.smtp_security == "tls" else None
        super().__init__(settings.smtp_host or "", settings.smtp_port, timeout=settings.delivery_timeout_seconds)
        user, password = settings.smtp_user, settings.smtp_password
        try:
            if settings.smtp_security == "starttls":
                self.starttls(context=tls)
            if user is not None and password is not None:
                self.login(user.get_secret_value(), password.get_secret_value())
        except BaseException:
            self.close()
            raise

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        """Connect to a checked address instead of resolving the name again; smtplib calls this hook.

        It is the first address that accepts; all share the time for connecting.
        """
        failure = OSError("the host has no address")
        for address in self._addresses:
            try:
                connected = socket.create_connection((address, port), timeout / len(self._addresses))
            except OSError as error:
                failure = error
            else:
                connected.settimeout(timeout)
                if self._implicit_tls is None:
                    return connected
                return self._implicit_tls.wrap_socket(connected, server_hostname=host)
        raise failure


class Email(receiver.Receiver):
    """Sends one message to all recipients over the mail server that the settings name; without a user no login.

    Errors: NotReady if the CA file is missing or invalid.
    """

    shows_pictures = True

    def __init__(self, settings: Settings, *, resolve: receiver.Resolve = receiver.resolve_host) -> None:
        self._settings = settings
        self._sender = settings.email_from or ""
        self._recipients = settings.email_to
        self._resolve = resolve
        try:
            self._tls = ssl.create_default_context(cafile=settings.smtp_ca_file)
        except OSError as error:
            reason = error.strerror or error
            raise NotReady(f"TRMON_SMTP_CA_FILE: {settings.smtp_ca_file}: {reason}") from error

    def deliver(self, notifications: Sequence[Notification], *, now: float) -> DeliveryResult:
        """Send one message. Answers 5xx are refusals; answers 4xx and network errors may be retried."""
        message = email_message(notifications, sender=self._sender, recipients=self._recipients, now=now)
        try:
            return _result_of_refusals(self._send(message), n_recipients=len(self._recipients))
        except receiver.DestinationForbidden as error:
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
            return DeliveryResult(DeliveryOutcome.RETRY, receiver.network_reason(error))

    def _send(self, message: EmailMessage) -> Refused:
        host = self._settings.smtp_host or ""
        addresses = receiver.checked_addresses(
            host,
            self._settings.smtp_port,
            name="mail server",
            is_allowed=host in self._settings.webhook_allow_hosts,
            resolve=self._resolve,
        )
        connection = SmtpConnection(self._settings, addresses=addresses, tls=self._tls)
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
