"""Receivers of alerts, one file each: webhook, Slack, PagerDuty, Alertmanager, e-mail, Apprise."""
