"""Replay of recordings: columns, decisions and worst tokens, computed again from recorded tokens."""
