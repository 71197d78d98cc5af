"""Where the runner runs: in a subprocess of an embedded service, or in a fleet of workers."""
