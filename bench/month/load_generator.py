"""Generated loads of thirty days: services, batch, and a mix with GPUs; the same pods for the same seed.

All parameters are here. Their sources:

- Kubernetes' own defaults: a horizontal autoscaler ignores changes below a tenth and waits five minutes before it
  removes pods; a rolling update has a quarter of the pods too many (maxSurge 25 %).
- Loads follow the hours of the day and the days of the week, most requests are small, and lifetimes differ by orders of
  magnitude: Cortez et al., "Resource Central" (SOSP 2017), of Azure's virtual machines.
- Few batch tasks have most of the work: Tirmazi et al., "Borg: the next generation" (EuroSys 2020). So durations and
  sizes of job arrays are lognormal.
- Requests of GPU tasks, and how often each occurs: the first 230 rows of ``openb_pod_list_default.csv`` of Alibaba's
  cluster-trace-gpu-v2023 (Weng et al., "Beware of Fragmentation", ATC 2023), rounded; a task that shares a GPU counts
  as one with a GPU of its own, as Kubernetes' device plugin has it. One in 200 has eight.

Numbers of pods are chosen for clusters of 30 to 100 nodes.
"""

from __future__ import annotations

import math
import random
from itertools import count
from typing import TYPE_CHECKING

from bench.month.load_trace import Trace, TracePod
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

HOUR, DAY, WEEK = 3600, 86_400, 604_800
MONTH = 30 * DAY
_MIB_A_GIB = 1024
_WORKDAYS = 5
_CPU = {100: 3, 250: 4, 500: 4, 1000: 3, 2000: 1}
"""Milli-cpu of a service's pods, with weights."""
_TASK_CPU = {500: 2, 1000: 4, 2000: 3, 4000: 1}
_GIB_A_CPU = {1: 1, 2: 3, 4: 4, 8: 2}
_GPU_SHAPES = {
    (3000, 5600, 1): 36,
    (4000, 15_258, 1): 11,
    (6000, 12_288, 1): 6,
    (8000, 30_517, 1): 13,
    (12_000, 16_384, 1): 14,
    (12_000, 49_152, 1): 8,
    (18_700, 64_512, 1): 6,
    (88_000, 327_680, 8): 0.5,
}
"""Milli-cpu, MiB and GPUs, with weights."""


class Services(Struct, kw_only=True):
    """Deployments that are scaled by the load of the hour; ``replicas`` is the median at the peak of a workday."""

    count: int
    replicas: float
    spread: float = 0.6
    """Sigma of the lognormal number of replicas."""
    valley: tuple[float, float] = (0.3, 0.7)
    """Load at night, relative to the peak."""
    weekend: tuple[float, float] = (0.5, 0.9)
    noise: float = 0.05
    interval: int = 900
    """Seconds between changes: each autoscaler is looked at four times an hour."""
    tolerance: float = 0.1
    updates_a_week: float = 2.0
    surge: float = 0.25
    step: int = 60
    """Seconds until the next quarter of the pods is replaced."""
    zone_spread_share: float = 0.0
    """Share of the services with maxSkew 1 over zones."""
    gpus: int = 0


class Tasks(Struct, kw_only=True):
    """Tasks that come alone and as arrays; durations are lognormal with this median in seconds."""

    an_hour: float
    arrays_a_day: float
    array: float
    """Median of the tasks of an array."""
    duration: float
    spread: float
    longest: int = DAY
    gpus: bool = False


LOADS: Mapping[str, tuple[Services | Tasks, ...]] = {
    "services": (Services(count=30, replicas=14),),
    "batch": (Tasks(an_hour=50, arrays_a_day=10, array=40, duration=45 * 60, spread=1.2),),
    "gpus": (
        Services(count=14, replicas=12),
        Services(count=6, replicas=4, gpus=1, zone_spread_share=0.0),
        Tasks(an_hour=10, arrays_a_day=1, array=6, duration=20 * 60, spread=1.5, gpus=True),
    ),
}
CAPACITY_TYPES: Mapping[str, tuple[str, ...]] = {
    "services": ("on-demand",),
    "batch": ("spot", "on-demand"),
    "gpus": ("spot", "on-demand"),
}
"""What the NodePools of each load may launch."""


def generate(load: str, *, seed: int, seconds: int = MONTH) -> Trace:
    """The trace of a load by its name; it starts on a Monday at midnight UTC."""
    return generate_parts(LOADS[load], random.Random(f"{load} {seed}"), seconds)  # noqa: S311 (a load, no secrets)


def generate_parts(parts: Sequence[Services | Tasks], rng: random.Random, seconds: int) -> Trace:
    """The trace of services and tasks."""
    pods: list[TracePod] = []
    for number, part in enumerate(parts):
        generator = _services if isinstance(part, Services) else _tasks
        pods += generator(part, number, rng, seconds)  # type: ignore[arg-type]  # as the part's type says
    return Trace(pods=tuple(sorted(pods, key=lambda p: (p.created, p.name))))


def _pick(rng: random.Random, weighted: Mapping[object, float]) -> object:
    return rng.choices(list(weighted), list(weighted.values()))[0]


def _shape(rng: random.Random, cpus: Mapping[int, float]) -> tuple[int, int]:
    cpu, gib_a_cpu = _pick(rng, cpus), _pick(rng, _GIB_A_CPU)  # type: ignore[arg-type]  # a mapping of ints
    assert isinstance(cpu, int)
    assert isinstance(gib_a_cpu, int)
    return cpu, cpu * gib_a_cpu * _MIB_A_GIB // 1000


def _gpu_shape(rng: random.Random) -> tuple[int, int, int]:
    shape = _pick(rng, _GPU_SHAPES)  # type: ignore[arg-type]  # a mapping of tuples
    assert isinstance(shape, tuple)
    return shape


# --- services ---


def _services(services: Services, number: int, rng: random.Random, seconds: int) -> Iterator[TracePod]:
    for i in range(services.count):
        yield from _Deployment(services, f"web-{number}-{i:02d}", rng).pods(seconds)


class _Deployment:
    """The pods of one service over time."""

    def __init__(self, services: Services, name: str, rng: random.Random) -> None:
        self._services = services
        self._name = name
        self._rng = rng
        self._serial = count()
        cpu, memory = _shape(rng, _CPU)
        self._shape = (cpu, memory, 0)
        if services.gpus:
            small = {s: w for s, w in _GPU_SHAPES.items() if s[2] == services.gpus}
            shape = _pick(rng, small)  # type: ignore[arg-type]  # a mapping of tuples
            assert isinstance(shape, tuple)
            self._shape = shape
        self._peak = max(2.0, rng.lognormvariate(math.log(services.replicas), services.spread))
        self._valley, self._weekend = rng.uniform(*services.valley), rng.uniform(*services.weekend)
        self._peak_hour = rng.gauss(14.0, 2.0)
        self._zone_spread = int(rng.random() < services.zone_spread_share)
        self._revision = 1
        self._running: list[tuple[str, int, int]] = []
        """Name, creation and revision of the current pods, oldest first."""

    def pods(self, seconds: int) -> Iterator[TracePod]:
        """All pods until then; those that exist at the end are deleted an hour after it."""
        services, rng = self._services, self._rng
        offset = rng.randrange(services.interval)
        updates = iter(sorted(self._update_times(seconds)))
        update = next(updates, seconds)
        replicas = self._desired(0)
        self._create(replicas, 0)
        for now in range(offset, seconds, services.interval):
            if now >= update:
                yield from self._update(now)
                update = next((u for u in updates if u > now), seconds)
                continue
            desired = self._desired(now)
            if abs(desired - len(self._running)) > services.tolerance * len(self._running):
                self._create(desired - len(self._running), now)
                yield from self._delete(len(self._running) - desired, now)
        yield from self._delete(len(self._running), seconds + HOUR)

    def _desired(self, now: int) -> int:
        hour = now % DAY / HOUR
        wave = (1 + math.cos(2 * math.pi * (hour - self._peak_hour) / 24)) / 2
        level = self._valley + (1 - self._valley) * wave
        if now // DAY % 7 >= _WORKDAYS:
            level *= self._weekend
        return max(1, round(self._peak * level * (1 + self._rng.gauss(0, self._services.noise))))

    def _update_times(self, seconds: int) -> Iterator[int]:
        """Times of rolling updates, on workdays from nine to five."""
        for day in range(-(-seconds // DAY)):
            if day % 7 < _WORKDAYS and self._rng.random() < self._services.updates_a_week / _WORKDAYS:
                yield day * DAY + self._rng.randrange(9 * HOUR, 17 * HOUR)

    def _update(self, now: int) -> Iterator[TracePod]:
        """Replace all pods, a quarter of them at a time; the last quarter within the autoscaler's interval."""
        self._revision += 1
        total = len(self._running)
        batch = max(1, math.ceil(self._services.surge * total))
        for step, first in enumerate(range(0, total, batch)):
            size = min(batch, total - first)
            at = now + step * self._services.step
            self._create(size, at)
            yield from self._delete(size, at + self._services.step)

    def _create(self, pods: int, now: int) -> None:
        self._running += [(f"{self._name}-{next(self._serial)}", now, self._revision) for _ in range(pods)]

    def _delete(self, pods: int, now: int) -> Iterator[TracePod]:
        """Delete ``pods`` pods, the oldest revision first; of it, random ones."""
        for _ in range(pods):
            oldest = min(revision for _, _, revision in self._running)
            rows = [i for i, (_, _, revision) in enumerate(self._running) if revision == oldest]
            name, created, revision = self._running.pop(self._rng.choice(rows))
            cpu, memory, gpus = self._shape
            yield TracePod(
                name=name,
                cpu=cpu,
                memory=memory,
                gpus=gpus,
                created=created,
                deleted=now,
                workload=f"Deployment/{self._name}/{revision}",
                zone_spread=self._zone_spread,
            )


# --- tasks ---


def _tasks(tasks: Tasks, number: int, rng: random.Random, seconds: int) -> Iterator[TracePod]:
    """Tasks whose rate follows the hours of the day, and arrays of equal tasks at any time."""
    serial = count()
    for at in _arrivals(tasks.an_hour / HOUR, rng, seconds, _office_hours):
        yield from _array(tasks, 1, f"task-{number}-{next(serial)}", at, rng)
    for at in _arrivals(tasks.arrays_a_day / DAY, rng, seconds, lambda _: 1.0):
        size = max(2, round(rng.lognormvariate(math.log(tasks.array), 0.8)))
        yield from _array(tasks, min(size, round(5 * tasks.array)), f"array-{number}-{next(serial)}", at, rng)


def _office_hours(now: int) -> float:
    """The rate relative to the highest: half of it at night, and on weekends."""
    wave = 0.75 + 0.25 * math.cos(2 * math.pi * (now % DAY / HOUR - 15) / 24)
    return wave * (0.5 if now // DAY % 7 >= _WORKDAYS else 1.0)


def _arrivals(rate: float, rng: random.Random, seconds: int, share: Callable[[int], float]) -> Iterator[int]:
    """Times of a Poisson process of that rate a second, thinned to a share of it that depends on the time."""
    now = rng.expovariate(rate)
    while now < seconds:
        if rng.random() < share(int(now)):
            yield int(now)
        now += rng.expovariate(rate)


def _array(tasks: Tasks, size: int, name: str, at: int, rng: random.Random) -> Sequence[TracePod]:
    """Tasks of one job: equal requests, similar durations."""
    cpu, memory, gpus = _gpu_shape(rng) if tasks.gpus else (*_shape(rng, _TASK_CPU), 0)
    typical = rng.lognormvariate(math.log(tasks.duration), tasks.spread)
    return [
        TracePod(
            name=f"{name}-{i}",
            cpu=cpu,
            memory=memory,
            gpus=gpus,
            created=at,
            deleted=at + max(30, min(tasks.longest, round(typical * rng.lognormvariate(0.0, 0.2)))),
            workload=f"Job/{name}",
        )
        for i in range(size)
    ]
