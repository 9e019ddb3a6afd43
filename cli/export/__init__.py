"""``tenon export``: metrics for Prometheus, with a dashboard for Grafana and alerting rules."""
