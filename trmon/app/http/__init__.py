"""What every request passes before and after its route: hosts, tokens, limits, bodies, problems."""
