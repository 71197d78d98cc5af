"""The service: HTTP, the worker, the notifier and the page, over the store and the domain; it holds no formulas."""
