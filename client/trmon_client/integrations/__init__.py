"""Hooks for RL frameworks, a module for each; a framework is imported only where its user attaches trmon to it."""
