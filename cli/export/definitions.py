"""The Grafana dashboard and Prometheus' alerting rules as text."""

from __future__ import annotations

import json

from cli.export import dashboard as grafana
from cli.export import rules as prometheus
from shared.api.yaml_documents import writer


def dashboard() -> str:
    """The dashboard, as JSON."""
    return f"{json.dumps(grafana.build(), indent=2)}\n"


def rules() -> str:
    """The rules, as YAML."""
    return writer.text(prometheus.build(), width=120)
