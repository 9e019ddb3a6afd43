"""One holder at a time."""

from __future__ import annotations

import contextlib
import json
import random
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from local.kubernetes.apiserver.http import Response
from shared.base import runtime
from shared.cluster import resources
from shared.cluster.cluster_pause import write_annotations
from shared.cluster.errors import UnavailableError
from shared.cluster.lease import (
    DURATION,
    ExclusiveRun,
    Lease,
    LeaseHeldError,
    LeaseLostError,
    LeaseRaceError,
    hold,
    run_exclusively,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from local.kubernetes.apiserver.http import Request
    from local.kubernetes.apiserver.server import Server
    from shared.cluster.client import Client
    from tests.integration.cluster.conftest import Clock

PATH = resources.LEASES.path("tenon-demo", namespace="kube-system")


def spec(client: Client) -> dict[str, object]:
    spec: dict[str, object] = json.loads(client.get(PATH))["spec"]
    return spec


def test_only_one_of_two_holders_acquires_the_lease(make_client: Callable[[], Client], clock: Clock) -> None:
    a, b = make_client(), make_client()
    with hold(a, cluster="demo", holder="a", now=clock.now):
        with pytest.raises(LeaseHeldError) as caught, hold(b, cluster="demo", holder="b", now=clock.now):
            pass
        assert caught.value.holder == "a"
        assert caught.value.until == clock.time + DURATION
    with hold(b, cluster="demo", holder="b", now=clock.now):
        assert spec(a)["holderIdentity"] == "b"
    assert spec(a)["holderIdentity"] == ""
    assert spec(a)["leaseTransitions"] == 1


def test_an_expired_lease_is_acquired_by_another_holder(make_client: Callable[[], Client], clock: Clock) -> None:
    a, b = make_client(), make_client()
    with hold(a, cluster="demo", holder="a", now=clock.now) as dead:
        clock.time += DURATION - timedelta(seconds=1)
        with pytest.raises(LeaseHeldError), hold(b, cluster="demo", holder="b", now=clock.now):
            pass
        clock.time += timedelta(seconds=1)
        with hold(b, cluster="demo", holder="b", now=clock.now) as lease:
            with pytest.raises(LeaseLostError):
                dead.check()
            lease.check()
            assert spec(a)["holderIdentity"] == "b"
        # the release of the crashed holder must not affect the next holder
    with hold(b, cluster="demo", holder="c", now=clock.now) as lease:
        lease.check()


def test_a_holder_with_a_slow_clock_notices_the_new_holder(make_client: Callable[[], Client], clock: Clock) -> None:
    a, b = make_client(), make_client()
    started = clock.time
    with hold(a, cluster="demo", holder="a", now=lambda: started) as slow:
        clock.time += DURATION
        with hold(b, cluster="demo", holder="b", now=clock.now), pytest.raises(LeaseLostError):
            slow.check()


@pytest.mark.parametrize("exists", [True, False])
def test_of_two_functions_that_acquire_at_the_same_moment_the_second_says_so(
    server: Server, make_client: Callable[[], Client], clock: Clock, *, exists: bool
) -> None:
    first, second = make_client(), make_client()
    if exists:
        with hold(first, cluster="demo", holder="before", now=clock.now):
            pass
    held: list[AbstractContextManager[Lease]] = []

    def acquire_first(request: Request) -> None:
        """The first function acquires the lease between the second's read and write."""
        if request.method != "GET" and not held:
            held.append(hold(first, cluster="demo", holder="first", now=clock.now))
            held[0].__enter__()

    server.intercept = acquire_first
    with pytest.raises(LeaseRaceError) as raised, hold(second, cluster="demo", holder="second", now=clock.now):
        pass
    assert str(raised.value) == "another function acquired the lease at the same moment"
    assert spec(first)["holderIdentity"] == "first"
    held[0].__exit__(None, None, None)


def test_a_function_that_lost_the_lease_says_so_and_releases_nothing(
    make_client: Callable[[], Client], clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    slow, quick = make_client(), make_client()
    started = clock.time
    with hold(slow, cluster="demo", holder="slow", now=lambda: started) as lease:
        clock.time += DURATION
        with (
            hold(quick, cluster="demo", holder="quick", now=clock.now),
            pytest.raises(LeaseLostError, match="another function acquired the lease before"),
        ):
            lease.check()
    assert [(r.levelname, r.message) for r in caplog.records if r.name == "shared.cluster.lease"] == [
        ("INFO", "slow released no lease: another function has acquired it")
    ]


def test_a_pause_ends_the_decision_that_is_being_made_and_leaves_the_lease_free(
    make_client: Callable[[], Client], clock: Clock
) -> None:
    client, user = make_client(), make_client()
    with hold(client, cluster="demo", holder="a", now=clock.now) as lease:
        write_annotations(user, {"tenon.sh/paused": "true"}, cluster="demo")
        with pytest.raises(LeaseLostError, match="or it was changed"):
            lease.check()
    with hold(client, cluster="demo", holder="b", now=clock.now) as lease:
        assert lease.annotations == {"tenon.sh/paused": "true"}
    write_annotations(user, {"tenon.sh/paused": None}, cluster="demo")
    with hold(client, cluster="demo", holder="c", now=clock.now) as lease:
        assert not lease.annotations


def test_check_renews_the_lease(client: Client, clock: Clock) -> None:
    with hold(client, cluster="demo", holder="a", now=clock.now) as lease:
        for _ in range(5):
            clock.time += DURATION / 2
            lease.check()
        assert lease.until == clock.time + DURATION


IMPLAUSIBLE = [
    pytest.param({"renewTime": "2126-11-21T00:00:00.000000Z"}, id="renewed in a hundred years"),
    pytest.param({"renewTime": "9999-12-31T23:59:59.000000Z"}, id="renewed at the end of time"),
    pytest.param({"leaseDurationSeconds": 2**31 - 1}, id="for 68 years"),
]


@pytest.mark.parametrize("forged", IMPLAUSIBLE)
@pytest.mark.parametrize("name", ["tenon-demo", "tenon-demo-lifecycle"])
def test_a_lease_that_no_function_writes_so_holds_up_nobody_and_an_event_names_its_holder(
    client: Client, clock: Clock, runs: Runs, forged: dict[str, object], name: str
) -> None:
    with hold(client, cluster=name.removeprefix("tenon-"), holder="provisioner/1", now=clock.now):
        path = resources.LEASES.path(name, namespace="kube-system")
        client.patch(path, {"spec": {"holderIdentity": "mallory", **forged}})
    clock.time += 2 * DURATION
    with runtime.using(runtime.Runtime(environ={}, now=clock.now, cache={})):
        if name == "tenon-demo":
            with hold(client, cluster="demo", holder="b", now=clock.now) as lease:
                lease.check()
        else:
            assert runs.run("b")
    (event,) = json.loads(client.get(resources.EVENTS.path(namespace="kube-system")))["items"]
    assert event["reason"] == "LeaseImplausible"
    assert 'its holder "mallory" says that it renewed it at' in event["message"]
    assert event["involvedObject"]["name"] == name


def test_an_error_in_the_body_releases_the_lease(client: Client, clock: Clock) -> None:
    with pytest.raises(KeyError), hold(client, cluster="demo", holder="a", now=clock.now):
        raise KeyError
    with hold(client, cluster="demo", holder="b", now=clock.now):
        pass


def test_a_failed_release_does_not_hide_the_result(server: Server, client: Client, clock: Clock) -> None:
    with hold(client, cluster="demo", holder="a", now=clock.now):
        server.intercept = lambda _: Response(503)
    server.intercept = None
    assert spec(client)["holderIdentity"] == "a"


def test_a_failing_server_is_not_a_held_lease(server: Server, client: Client, clock: Clock) -> None:
    server.intercept = lambda _: Response(503)
    with pytest.raises(UnavailableError), hold(client, cluster="demo", holder="a", now=clock.now):
        pass


def test_the_lease_never_has_two_holders(make_client: Callable[[], Client], clock: Clock) -> None:
    """500 random steps of four holders, some of which crash: the lease is checked before each write."""
    rng = random.Random(7)  # noqa: S311 (a test's dice)
    clients = [make_client() for _ in range(4)]
    holding: dict[int, tuple[AbstractContextManager[Lease], Lease]] = {}
    wins = 0
    for _ in range(500):
        who = rng.randrange(4)
        clock.time += timedelta(seconds=rng.choice([0, 1, 20, 61]))
        if who not in holding:
            manager = hold(clients[who], cluster="demo", holder=f"{who}/{rng.random()}", now=clock.now)
            try:
                holding[who] = (manager, manager.__enter__())
            except LeaseHeldError:
                continue
        passed = []
        for holder_, (_, lease) in list(holding.items()):
            try:
                lease.check()
                passed.append(holder_)
            except LeaseLostError:
                del holding[holder_]
        assert len(passed) <= 1
        wins += len(passed)
        if rng.random() < 0.5 and who in holding:
            held, _ = holding.pop(who)
            held.__exit__(None, None, None)
    assert wins > 50


class Runs:
    """Runs of one action by several functions, each with its client; ``during`` is what happens while one runs."""

    def __init__(self, make_client: Callable[[], Client], clock: Clock) -> None:
        self._make_client = make_client
        self._clock = clock
        self.runs: list[str] = []
        self.during: list[Callable[[], object]] = []

    def run(self, holder: str, *, client: Client | None = None, run_time: float = 20) -> bool:
        return self.result(holder, client=client, run_time=run_time).ran

    def result(self, holder: str, *, client: Client | None = None, run_time: float = 20) -> ExclusiveRun:
        def action() -> None:
            self.runs.append(holder)
            if self.during:
                self.during.pop(0)()

        return run_exclusively(
            client or self._make_client(),
            action,
            cluster="demo",
            purpose="lifecycle",
            holder=holder,
            now=self._clock.now,
            duration=timedelta(seconds=15),
            run_time=timedelta(seconds=run_time),
        )

    def ask_after(self, seconds: float, holder: str) -> None:
        self.pass_time(seconds)
        self.run(holder)

    def pass_time(self, seconds: float) -> None:
        self._clock.time += timedelta(seconds=seconds)


@pytest.fixture
def runs(make_client: Callable[[], Client], clock: Clock) -> Runs:
    return Runs(make_client, clock)


def test_a_run_that_meets_another_one_is_repeated_by_it(runs: Runs) -> None:
    met: list[bool] = []
    runs.during = [lambda: met.extend([runs.run("b"), runs.run("c")])]
    assert runs.run("a")
    assert met == [False, False]
    assert runs.runs == ["a", "a"]  # both requests came before the second run
    assert runs.run("d")
    assert runs.runs == ["a", "a", "d"]


def test_repetitions_end_with_the_run_time_and_the_next_run_is_free(runs: Runs) -> None:
    runs.during = [lambda: runs.ask_after(6, "b") for _ in range(100)]
    assert runs.run("a", run_time=12)
    assert runs.runs == ["a", "a"]
    runs.during.clear()
    assert runs.run("c")


def test_a_run_tells_whether_it_left_a_request_to_the_next_one(runs: Runs) -> None:
    runs.during = [lambda: runs.ask_after(1, "b")]
    assert runs.result("a", run_time=0) == ExclusiveRun(ran=True, request_left=True)
    assert runs.runs == ["a"]
    assert runs.result("c") == ExclusiveRun(ran=True)


def test_a_lease_that_could_not_be_released_delays_runs_until_it_expires(server: Server, runs: Runs) -> None:
    def fail() -> None:
        server.intercept = lambda _: Response(403)

    runs.during = [fail]
    runs.run("a")
    server.intercept = None
    runs.pass_time(14)
    assert not runs.run("b")
    runs.pass_time(2)
    assert runs.run("c")
    assert runs.runs == ["a", "c"]


def test_a_run_that_took_too_long_leaves_its_successor_the_lease(
    runs: Runs, make_client: Callable[[], Client], clock: Clock
) -> None:
    with contextlib.ExitStack() as successor:

        def lose_the_lease() -> None:
            runs.pass_time(16)
            successor.enter_context(hold(make_client(), cluster="demo-lifecycle", holder="b", now=clock.now))

        runs.during = [lose_the_lease]
        assert runs.run("a")
        assert not runs.run("c")
    assert runs.runs == ["a"]


def test_without_the_lease_an_action_runs_all_the_same(server: Server, runs: Runs) -> None:
    server.intercept = lambda _: Response(403)
    assert runs.run("a")
    assert runs.runs == ["a"]


def test_a_request_that_comes_after_the_release_runs_by_itself(
    server: Server, runs: Runs, make_client: Callable[[], Client], clock: Clock
) -> None:
    """The holder releases the lease between another run's attempt to acquire it and its request."""
    with hold(make_client(), cluster="demo-lifecycle", holder="a", now=clock.now) as held:

        def release_before_the_request(request: Request) -> None:
            if request.method == "PATCH":
                server.intercept = None
                held.release()

        server.intercept = release_before_the_request
        assert runs.run("b")
    assert runs.runs == ["b"]
