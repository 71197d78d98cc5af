"""Checks of the arguments of `log_batch`: padded, packed or ragged log-probs, masks and labels."""
