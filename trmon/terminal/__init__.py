"""Commands that query a running service over HTTP and print the answer as text."""
