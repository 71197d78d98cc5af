"""Settings, logging and the rules file: everything an operator configures."""
