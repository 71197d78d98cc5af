"""The arguments of `log_batch`, checked once: padded, packed or ragged log-probs, masks and labels."""
