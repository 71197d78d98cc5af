"""The one source of trmon's Grafana dashboards and alert rules: `make dashboards` writes the files from it."""
