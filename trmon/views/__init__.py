"""In-memory read models of runs: the newest view, summaries and current policies, shared by the API and the runner."""
