"""The decision that the trainer gets, the policy behind it, and the masks in the trainer's own layout."""
