"""What every request passes: gateway, authentication, limits, bodies, problem details; and what routes depend on."""
