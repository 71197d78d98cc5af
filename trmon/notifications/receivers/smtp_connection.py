"""The connection to a mail server: to a checked address of it, encrypted, with its certificate verified."""

from __future__ import annotations

import smtplib
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Security = Literal["starttls", "tls", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MailServer:
    """A mail server and how to log in; without `user` nothing is sent to log in."""

    host: str
    port: int
    security: Security
    user: str | None = None
    password: str | None = None
    ca_file: Path | None = None

    def tls_context(self) -> ssl.SSLContext:
        """Return the TLS settings of a client. Errors: OSError for a CA file that is missing or invalid."""
        return ssl.create_default_context(cafile=self.ca_file)


class SmtpConnection(smtplib.SMTP):
    """Connects to the first of `addresses` that accepts; the certificate is verified against the server's host name.

    Errors: OSError, SMTPException.
    """

    def __init__(
        self, server: MailServer, *, addresses: Sequence[str], tls: ssl.SSLContext, timeout_seconds: float
    ) -> None:
        self._addresses = addresses
        self._implicit_tls = tls if server.security == "tls" else None
        super().__init__(server.host, server.port, timeout=timeout_seconds)
        try:
            if server.security == "starttls":
                self.starttls(context=tls)
            if server.user is not None:
                self.login(server.user, server.password or "")
        except BaseException:
            self.close()
            raise

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        """Connect to a checked address instead of resolving the name again; smtplib calls this hook."""
        connected = self._connect(port, timeout)
        if self._implicit_tls is None:
            return connected
        return self._implicit_tls.wrap_socket(connected, server_hostname=host)

    def _connect(self, port: int, timeout: float) -> socket.socket:
        """Connect to the first address that accepts; all share the time for connecting."""
        failure = OSError("the host has no address")
        for address in self._addresses:
            try:
                connected = socket.create_connection((address, port), timeout / len(self._addresses))
            except OSError as error:
                failure = error
            else:
                connected.settimeout(timeout)
                return connected
        raise failure
