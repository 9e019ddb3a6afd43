"""In which order and when pending pods are tried, as by kube-scheduler 1.36 (docs/facts/kubernetes.md)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from local.kubernetes.scheduler.pod_signature import signature_of
from local.kubernetes.scheduler.queueing_hints import NODE_RESOURCES_FIT, TAINT_TOLERATION
from local.kubernetes.scheduler.scheduling_queue import QueuedPod, SchedulingQueue, backoff_duration
from shared.api.kubernetes import Pod, PodSpec
from shared.api.meta import ObjectMeta

START = datetime(2026, 11, 21, 8, 0, 0, 250_000, tzinfo=UTC)
NO_ROOM = frozenset({NODE_RESOURCES_FIT})
TAINTED = frozenset({TAINT_TOLERATION})


def seconds(number: float) -> datetime:
    return START + timedelta(seconds=number)


def queued(name: str, *, priority: int = 0, app: str = "web", at: datetime = START) -> QueuedPod:
    pod = Pod(metadata=ObjectMeta(name=name, labels={"app": app}), spec=PodSpec(priority=priority))
    return QueuedPod({"metadata": {"uid": name}}, signature_of(pod), at)


class Queue(SchedulingQueue):
    """A queue whose pods are told apart by name."""

    def names(self) -> list[str]:
        """Pop all pods."""
        names: list[str] = []
        while (pod := self.pop()) is not None:
            names.append(pod.uid)
        return names

    def fail(self, name: str, at: float, rejected_by: frozenset[str] = NO_ROOM) -> None:
        """Pop the next pod, which must be this one, and let its attempt fail."""
        pod = self.pop()
        assert pod is not None
        assert pod.uid == name
        self.add_unschedulable(pod, rejected_by, seconds(at))

    def change(self, plugin: str, at: float) -> None:
        """A change in the cluster that concerns this plugin."""
        self.move(lambda _signature, rejected_by: plugin in rejected_by, seconds(at))


@pytest.fixture
def queue() -> Queue:
    return Queue()


def test_pods_are_tried_by_priority_and_then_by_arrival(queue: Queue) -> None:
    for name, priority in (("a", 0), ("b", 5), ("c", 0), ("d", 5), ("e", -1)):
        queue.add(queued(name, priority=priority))
    assert queue.names() == ["b", "d", "a", "c", "e"]


def test_a_failed_attempt_puts_a_pod_behind_those_that_were_not_tried_since(queue: Queue) -> None:
    for name in ("a", "b", "c"):
        queue.add(queued(name))
    queue.fail("a", 1)
    queue.fail("b", 2)
    queue.change(NODE_RESOURCES_FIT, 20)
    assert queue.names() == ["c", "a", "b"]


@pytest.mark.parametrize(("failures", "expected"), [(1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (50, 10)])
def test_back_off_doubles_from_one_to_ten_seconds(failures: int, expected: int) -> None:
    assert backoff_duration(failures) == timedelta(seconds=expected)


def test_a_pod_in_back_off_comes_after_active_ones_but_does_not_wait(queue: Queue) -> None:
    queue.add(queued("a", priority=9))
    queue.fail("a", 0)
    queue.change(NODE_RESOURCES_FIT, 0.1)
    queue.add(queued("b"))
    assert queue.names() == ["b", "a"]


def test_pods_in_back_off_come_in_order_of_its_end_and_then_of_priority(queue: Queue) -> None:
    for name, priority in (("a", 0), ("b", 0), ("c", 7)):
        queue.add(queued(name, priority=priority))
    queue.fail("c", 0)
    queue.fail("a", 0)
    queue.fail("b", 0)
    queue.change(NODE_RESOURCES_FIT, 0.1)
    # The second failure of c doubles its back-off, so others go before it despite its priority.
    queue.fail("c", 0.2)
    queue.change(NODE_RESOURCES_FIT, 0.3)
    assert queue.names() == ["a", "b", "c"]


def test_a_pod_whose_back_off_is_over_is_active_at_once(queue: Queue) -> None:
    queue.add(queued("a", priority=1))
    queue.fail("a", 0)
    queue.change(NODE_RESOURCES_FIT, 2)
    queue.add(queued("b"))
    assert queue.names() == ["a", "b"]


def test_a_change_retries_only_pods_that_its_plugin_rejected(queue: Queue) -> None:
    queue.add(queued("a"))
    queue.add(queued("b"))
    queue.fail("a", 0, NO_ROOM)
    queue.fail("b", 0, TAINTED)
    queue.change(TAINT_TOLERATION, 20)
    assert queue.names() == ["b"]


def test_a_pod_that_nothing_concerns_is_retried_after_five_minutes_at_the_next_half_minute(queue: Queue) -> None:
    queue.add(queued("a"))
    queue.fail("a", 10)
    due = queue.due()
    assert due == datetime(2026, 11, 21, 8, 5, 30, tzinfo=UTC)
    queue.flush(due - timedelta(seconds=1))
    assert queue.names() == []
    queue.flush(due)
    assert queue.names() == ["a"]
    assert queue.due() is None


def test_without_a_plugins_reason_a_pod_waits_for_its_back_off(queue: Queue) -> None:
    queue.add(queued("a"))
    queue.fail("a", 0, frozenset())
    queue.change(NODE_RESOURCES_FIT, 0.5)
    assert queue.names() == []
    # 8:00:00.25 and one second is 8:00:01.25, cut to 8:00:01, which has passed at the look at 8:00:02.
    assert queue.due() == datetime(2026, 11, 21, 8, 0, 2, tzinfo=UTC)
    queue.flush(seconds(1))
    assert queue.names() == []
    queue.flush(seconds(1.75))
    assert queue.names() == ["a"]


def test_a_removed_pod_is_nowhere(queue: Queue) -> None:
    for name in ("a", "b", "c"):
        queue.add(queued(name))
    queue.fail("a", 0)
    queue.fail("b", 0, frozenset())
    for name in ("a", "b", "c"):
        queue.remove(name)
    queue.change(NODE_RESOURCES_FIT, 20)
    assert (queue.due(), queue.names()) == (None, [])
    assert not queue.has_signature(queued("a").signature.key)
