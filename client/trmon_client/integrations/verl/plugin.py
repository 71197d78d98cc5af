"""The entry point of `verl.plugins`, which every `import verl` loads: without TRMON_URL it imports nothing."""

import os

if os.environ.get("TRMON_URL") and os.environ.get("TRMON_MODE") != "off":
    from trmon_client.integrations.verl.hooks import TrackingHooks

    TrackingHooks().hook()
