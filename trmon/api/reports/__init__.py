"""Where trainers post: one message, or a bundle of many."""
