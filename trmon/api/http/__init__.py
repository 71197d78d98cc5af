"""What every request passes: gateway, authentication, limits, bodies, problem details; and the routes' dependencies."""
