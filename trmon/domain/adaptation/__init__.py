"""Adaptation: controllers that read stored columns and propose bounds; pure, and each answer has its reason."""
