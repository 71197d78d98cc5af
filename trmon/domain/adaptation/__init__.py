"""Adaptation: controllers that read stored columns and propose bounds, each with a reason."""
