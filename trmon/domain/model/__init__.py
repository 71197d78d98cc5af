"""The vocabulary that every other part shares: errors, identities, access, messages, severity."""
