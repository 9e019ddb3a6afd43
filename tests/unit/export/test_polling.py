"""A scrape never waits for a source, and says how old and how complete what it shows is."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError

from cli.export import families, polling
from cli.export.exposition import Exposition, Sample, sample
from cli.export.polling import Poller, poll_until
from cli.export.server import serve
from shared.cluster.errors import ForbiddenError, UnauthorizedError, UnavailableError
from shared.instance_types.catalog_store import CatalogMissingError

if TYPE_CHECKING:
    from collections.abc import Iterable

NODES = sample(families.NODE_COUNT, 3)


def values(poller: Poller, now: datetime) -> dict[str, float]:
    """The values by family; those about reads by outcome."""
    return {s.labels.get("outcome", s.family.name): s.value for s in poller.samples(now)}


def health(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url.replace("/metrics", "/healthz"), timeout=5) as response:  # noqa: S310 (http)
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


class Source:
    """Fails with what it is told, or has three nodes."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.lines: list[str] = []

    def read(self, _now: datetime) -> Iterable[Sample]:
        if self.error is not None:
            raise self.error
        return [NODES]

    def poller(self) -> Poller:
        return Poller("cluster", self.read, interval=30, log=self.lines.append)


def test_samples_are_kept_while_the_source_fails_until_they_are_too_old() -> None:
    source = Source()
    poller = source.poller()
    assert values(poller, datetime.now(UTC))[families.UP.name] == 0
    poller.poll()
    now = datetime.now(UTC)
    shown = values(poller, now)
    assert (shown[families.NODE_COUNT.name], shown[families.UP.name]) == (3, 1)
    assert shown[families.LAST_SUCCESS.name] == pytest.approx(now.timestamp(), abs=5)

    source.error = UnavailableError(0, "Gone", "the API server is gone")
    poller.poll()
    poller.poll()
    shown = values(poller, now)
    assert (shown[families.NODE_COUNT.name], shown[families.UP.name], shown["unreachable"]) == (3, 0, 2)
    late = values(poller, now + timedelta(seconds=poller.max_age + 1))
    assert families.NODE_COUNT.name not in late
    assert late[families.AGE.name] > poller.max_age
    assert len(source.lines) == 1  # not one for each read
    assert "the API server is gone" in source.lines[0]

    source.error = None
    poller.poll()
    assert values(poller, now)[families.UP.name] == 1
    assert source.lines[1:] == ["cluster is read again"]


def client_error(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "m"}}, "GetMetricData")


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ForbiddenError(403, "Forbidden", "no"), polling.DENIED),
        (UnauthorizedError(401, "Unauthorized", "no"), polling.DENIED),
        (client_error("AccessDenied"), polling.DENIED),
        (client_error("ExpiredToken"), polling.DENIED),
        (client_error("Throttling"), polling.FAILED),
        (UnavailableError(0, "Timeout", "slow"), polling.UNREACHABLE),
        (EndpointConnectionError(endpoint_url="https://monitoring"), polling.UNREACHABLE),
        (NoCredentialsError(), polling.UNREACHABLE),
        (CatalogMissingError("no catalog"), polling.MISSING),
        (polling.NotDeployedError("not deployed"), polling.MISSING),
        (ZeroDivisionError("a bug"), polling.FAILED),
    ],
)
def test_a_failed_read_says_why_in_one_line_and_is_counted(error: Exception, outcome: str) -> None:
    source = Source()
    source.error = error
    poller = source.poller()
    poller.poll()
    assert poller.outcome == outcome
    assert values(poller, datetime.now(UTC))[outcome] == 1
    (line,) = source.lines
    assert line.startswith(f"cluster can't be read ({outcome}): ")
    assert "\n" not in line


def test_a_scrape_does_not_wait_for_a_source_that_hangs() -> None:
    released, begun = threading.Event(), threading.Event()

    def hang(_now: datetime) -> Iterable[Sample]:
        begun.set()
        released.wait(30)
        return []

    hanging = Poller("cloudwatch", hang, interval=60, log=print)
    source = Source()
    cluster = source.poller()
    stop = threading.Event()
    threads = [threading.Thread(target=poll_until, args=(stop, [p]), daemon=True) for p in (hanging, cluster)]
    exposition = Exposition(lambda: [s for p in (hanging, cluster) for s in p.samples(datetime.now(UTC))])
    pollers = (hanging, cluster)
    stuck = lambda: [p.name for p in pollers if p.is_stuck()]  # noqa: E731 (next to its use)
    with serve(exposition, address="127.0.0.1", port=0, stuck=stuck) as url:
        for thread in threads:
            thread.start()
        assert begun.wait(5)
        assert health(url) == (200, "ok\n")
        hanging.stuck_seconds = 0.0
        assert health(url) == (503, "reads that never end: cloudwatch\n")
        before = time.monotonic()
        while cluster.outcome != polling.OK:
            time.sleep(0.01)
        with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310 (http)
            text = response.read().decode()
        assert time.monotonic() - before < 5
    assert "karpenter_cluster_state_node_count 3.0" in text
    assert 'tenon_export_up{source="cloudwatch"} 0.0' in text
    assert 'tenon_export_up{source="cluster"} 1.0' in text
    stop.set()
    released.set()
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()


def test_it_serves_on_ipv6_too() -> None:
    with serve(Exposition(lambda: [NODES]), address="::1", port=0) as url:
        assert url.startswith("http://[::1]:")
        with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310 (http)
            assert b"karpenter_cluster_state_node_count 3.0" in response.read()
