"""The decision that the trainer gets, the policy it rests on, and the masks in the trainer's own layout."""
