"""The e-mail of a message: headers that thread an alert's episode, plain text and HTML."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate
from html import escape

from trmon.domain.alerts.notification import Notification
from trmon.notifications.receivers.message_key import message_key
from trmon.notifications.receivers.message_text import AlertParagraph, MessageText, message_text
from trmon.notifications.receivers.plain_text import one_line, plain_text

MAX_SUBJECT_LENGTH = 200
MAX_REFERENCES = 20


def email_message(
    notifications: Sequence[Notification], *, sender: str, recipients: Sequence[str], now: float
) -> EmailMessage:
    """Return the e-mail of notifications; a retry has the same Message-ID.

    Every message about an episode refers to the same id, so that mail programs show them as one thread.
    Source: RFC 5322, section 3.6.4; RFC 3834 (Auto-Submitted).
    """
    text, domain = message_text(notifications), sender.rpartition("@")[2]
    references = dict.fromkeys(_episode_id(notification, domain=domain) for notification in notifications)
    message = EmailMessage(policy=SMTP)
    message["From"] = Address("trmon", addr_spec=sender)
    message["To"] = ", ".join(recipients)
    message["Subject"] = one_line(text.subject, max_length=MAX_SUBJECT_LENGTH)
    message["Date"] = formatdate(now)
    message["Message-ID"] = _id_of("message", message_key(notifications), domain=domain)
    message["References"] = " ".join(list(references)[:MAX_REFERENCES])
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(plain_text(text), cte="quoted-printable")
    message.add_alternative(_html(text), subtype="html", cte="quoted-printable")
    return message


def _html(text: MessageText) -> str:
    return f"<!DOCTYPE html>\n<html><body>\n{''.join(_html_paragraphs(text))}</body></html>\n"


def _html_paragraphs(text: MessageText) -> Iterator[str]:
    yield from map(_html_alert, text.alerts)
    if text.note is not None:
        yield f"<p>{escape(text.note)}</p>\n"
    if text.link is not None:
        yield f'<p><a href="{escape(text.link.url)}">{escape(text.link.text)}</a></p>\n'


def _html_alert(alert: AlertParagraph) -> str:
    details = "".join(f"<br>\n{escape(line)}" for line in alert.details)
    return f"<p><strong>{escape(alert.status)}: {escape(alert.summary)}</strong>{details}</p>\n"


def _episode_id(notification: Notification, *, domain: str) -> str:
    run, alert = notification.run, notification.alert
    return _id_of("episode", f"{run.project}/{run.run}:{alert.identity}:{alert.since_at:.3f}", domain=domain)


def _id_of(kind: str, key: str, *, domain: str) -> str:
    return f"<trmon.{kind}.{hashlib.sha256(key.encode()).hexdigest()[:32]}@{domain}>"
