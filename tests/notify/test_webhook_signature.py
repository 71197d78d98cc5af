"""Signatures of webhooks, against the published test vector of Standard Webhooks."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
import standardwebhooks

from trmon.notify.webhook import WebhookSigner, standard_key, standard_message_id

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY = b'{"test": 2432232314}'


def test_the_key_and_the_signature_are_those_of_the_published_vector() -> None:
    sent_at = datetime.fromtimestamp(1614265330, tz=timezone.utc)
    signature = standardwebhooks.Webhook(standard_key(SECRET)).sign(
        "msg_p5jXN8AQM9LWM0D4loKWxJek", sent_at, BODY.decode()
    )
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_request_has_the_standard_headers_and_trmons_own() -> None:
    headers = WebhookSigner(SECRET).headers(BODY, message_key="hook:1/high:3:7.2:firing", timestamp=1614265330)
    assert list(headers) == ["webhook-id", "webhook-timestamp", "webhook-signature", "X-Trmon-Signature"]
    assert headers["webhook-timestamp"] == "1614265330"
    assert headers["webhook-signature"].startswith("v1,")


def test_the_id_has_no_full_stop_and_depends_on_the_key() -> None:
    message_id = standard_message_id("hook:1/high:3:7.2:firing")
    assert "." not in message_id
    assert (
        message_id == standard_message_id("hook:1/high:3:7.2:firing") != standard_message_id("hook:1/high:3:7.3:firing")
    )


@pytest.mark.parametrize("secret", ["whsec_", "whsec_not base64", "whsec_abc"])
def test_a_malformed_base64_secret_is_refused(secret: str) -> None:
    with pytest.raises(ValueError, match="must continue with base64"):
        WebhookSigner(secret)
