"""What Redis carries between processes: wake-ups and rate limits, nothing that is not found without it too.

Threads of their own speak to it, so that nobody else waits for it.
"""
