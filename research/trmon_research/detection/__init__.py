"""How well trmon finds faults: runs with known faults, recorded once and replayed through the service's ingest."""
