"""The source of trmon's Grafana dashboards and alert rules; `make dashboards` generates the files from it."""
