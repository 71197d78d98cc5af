"""What receivers are sent: the body and the names of the headers of webhooks, and mails."""

from __future__ import annotations

import json
from typing import Any

from tests.guards.golden_files import VARIES, lines, plain, plain_text
from tests.guards.recorded_service import RecordedService


def webhooks(service: RecordedService) -> dict[str, Any]:
    """Return what was posted by its delivery; what else fires depends on how far the run was by then."""
    found = {}
    for one in service.webhook.posted:
        body = json.loads(one.body)
        firing = sorted({name for other in body["firing"] for name in other})
        headers = {name: plain(value, name.lower()) for name, value in one.headers.items() if name != "Content-Length"}
        headers |= {name: VARIES for name in headers if "timestamp" in name.lower() or name in ("Host", "User-Agent")}
        at = "/".join(plain(one.headers["X-Trmon-Delivery"]).split(":")[1:3])
        found[at] = {"headers": headers, "body": plain({**body, "firing": None}) | {"names in firing": firing}}
    return found


def mails(service: RecordedService) -> dict[str, Any]:
    """Return the mails by subject, as lines."""
    return {
        str(one.message["Subject"]): {
            "headers": {name: "\n".join(lines(str(value))) for name, value in one.message.items()},
            "parts": {
                part.get_content_type(): [line for line in lines(part.get_content()) if "Also firing" not in line]
                if part.get_content_maintype() == "text"
                else {name: plain_text(str(value)) for name, value in part.items()}
                for part in one.message.walk()
                if not part.is_multipart()
            },
        }
        for one in service.mail.received
    }
