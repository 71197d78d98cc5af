"""Validates e-mail addresses."""

from __future__ import annotations

from email.errors import HeaderParseError
from email.headerregistry import Address


def check_email_address(text: str) -> str:
    """Return a plain address such as ana@example.org. Errors: ValueError."""
    try:
        address = Address(addr_spec=text)
        is_valid = text.isascii() and text.isprintable() and bool(address.username and address.domain)
    except (HeaderParseError, ValueError, IndexError):
        is_valid = False
    if not is_valid:
        raise ValueError(f"{text!r} is not an e-mail address; write it without a name, e.g. ana@example.org")
    return text
