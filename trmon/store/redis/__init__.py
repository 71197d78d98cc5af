"""Commit notices and rate limits that processes share through Redis; losing Redis loses no data.

Separate threads use the connection, so that nothing else waits for it.
"""
