"""The fleet: every run at a glance, judged and sorted by who needs somebody."""
