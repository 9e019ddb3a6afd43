"""`tenon export` as a process, and what a scrape of it has."""

from __future__ import annotations

import contextlib
import os
import subprocess
import urllib.request
from typing import TYPE_CHECKING, Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from tests.integration.cli.command import CHECKOUT, TENON

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLUSTER = "demo"


OPENMETRICS = "application/openmetrics-text; version=1.0.0"


class Scrape:
    """The samples of a scrape over HTTP."""

    def __init__(self, url: str, *, accept: str = OPENMETRICS) -> None:
        request = urllib.request.Request(url, headers={"Accept": accept})  # noqa: S310 (http)
        with urllib.request.urlopen(request, timeout=5) as response:  # noqa: S310 (the same)
            self.text = response.read().decode()
            self.content_type = response.headers["Content-Type"]
        parse: Any = parse_openmetrics if accept == OPENMETRICS else parse_text
        self.families = list(parse(self.text))

    @property
    def names(self) -> set[str]:
        return {sample.name for family in self.families for sample in family.samples}

    def values(self, name: str, /, **labels: str) -> list[float]:
        return [
            sample.value
            for family in self.families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]

    def total(self, name: str, /, **labels: str) -> float:
        return sum(self.values(name, **labels))


NOWHERE = "http://127.0.0.1:9"


AWS = {"AWS_ENDPOINT_URL": NOWHERE, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1"}


UNREACHABLE = """
apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "https://127.0.0.1:9"}}]
users: [{name: c, user: {token: t}}]
contexts: [{name: c, context: {cluster: c, user: c}}]
"""


def environ(kubeconfig: Path, home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {**kept, **AWS, "KUBECONFIG": str(kubeconfig), "HOME": str(home), "AWS_EC2_METADATA_DISABLED": "true"}


@contextlib.contextmanager
def running(*options: str, kubeconfig: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and its URL of the metrics."""
    process = subprocess.Popen(
        [*TENON, "export", "--port", "0", "--cluster", CLUSTER, *options],
        cwd=CHECKOUT,
        env=environ(kubeconfig, kubeconfig.parent),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "serving" in line)
        yield process, line.split()[-1]
    finally:
        process.kill()
        process.communicate()
