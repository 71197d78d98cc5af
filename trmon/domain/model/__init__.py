"""Types that all other packages share: errors, identities, access, messages, severity."""
