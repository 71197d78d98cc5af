"""Events as they happen, over Server-Sent Events."""
