"""The budget of a run: the mismatch and the lag that it can tolerate, where its drift comes from, and what it needs."""
