"""Compares inputs on a control plane and here: new objects, placements, evictions. Yields what nothing explains."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tests.real.differential import placement_verdicts, random_evictions, random_placements
from tests.real.differential.generated_objects import ObjectGenerator
from tests.real.differential.object_answers import disagreements
from tests.real.differential.object_reasons import reason_for
from tests.real.differential.object_servers import EmbeddedServer, RealServer
from tests.real.differential.shrinking import shrunk
from tests.real.scheduling import EmbeddedCluster, RealCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.kubernetes.registry.store import Store
    from tests.real.differential.object_answers import Disagreement
    from tests.real.differential.random_placements import PlacementProblem

Json = dict[str, Any]
_CREATED = 201
_OBJECTS_EACH = 1000
_FIXED = ("apiVersion", "kind")


@dataclass(frozen=True)
class Finding:
    """What nothing explains: where it was met, what differs, and the smallest input with that difference."""

    seed: int
    number: int
    text: str
    smallest: Any = None

    def __str__(self) -> str:
        smallest = "" if self.smallest is None else f"\n    {json.dumps(self.smallest, ensure_ascii=False)}"
        return f"seed {self.seed}, number {self.number}: {self.text}{smallest}"


@dataclass
class Tally:
    """How many inputs were judged, and how many verdicts had a difference that a listed reason explains."""

    judged: int = 0
    accepted: int = 0
    explained: int = 0


class ObjectComparison:
    """Sends generated objects to both API servers, as requests that change nothing."""

    def __init__(self, real: RealServer) -> None:
        self._real = real
        self._embedded = EmbeddedServer()
        self.tally = Tally()

    def findings(self, seed: int, count: int) -> Iterator[Finding]:
        """The unexplained differences of that many objects of a seed."""
        generator = ObjectGenerator(random.Random(seed))  # noqa: S311 - inputs of a test
        for number in range(count):
            obj = generator.following()
            unexplained, explained, is_accepted = self._compare(obj)
            self.tally.judged += 1
            self.tally.accepted += is_accepted
            self.tally.explained += bool(explained)
            for disagreement in unexplained:
                yield Finding(seed, number, str(disagreement), shrunk(obj, self._still(disagreement)))

    def of_seed(self, seed: int) -> Iterator[Finding]:
        """The unexplained differences of the objects of one seed."""
        return self.findings(seed, _OBJECTS_EACH)

    def _compare(self, obj: Json) -> tuple[list[Disagreement], list[Disagreement], bool]:
        """The unexplained and the explained disagreements about an object, and whether the real server accepts it."""
        path = self._embedded.path_of(obj)
        real = self._real.ask(path, obj)
        all_of_them = disagreements(obj, real, self._embedded.ask(path, obj))
        explained = [d for d in all_of_them if reason_for(obj, d)]
        return [d for d in all_of_them if d not in explained], explained, real[0] == _CREATED

    def _still(self, disagreement: Disagreement) -> Any:
        def differs(obj: Any) -> bool:
            if not isinstance(obj, dict) or any(name not in obj for name in _FIXED):
                return False
            return any(d.kind == disagreement.kind and d.field == disagreement.field for d in self._compare(obj)[0])

        return differs


class PlacementComparison:
    """Has waiting pods placed by the real scheduler, the embedded one and the solver."""

    def __init__(self, real: RealCluster) -> None:
        self._real = real
        self.tally = Tally()

    def findings(self, seed: int) -> Iterator[Finding]:
        """The differences of one problem."""
        problem = random_placements.random_problem(seed)
        differing = self._differing(problem)
        self.tally.judged += len(problem.waiting())
        for number, (name, text) in enumerate(sorted(differing.items())):
            pod, _, node = name.rpartition("-on-")
            alone = problem.only(pod, node)
            yield Finding(seed, number, f"{name}: {text}", asdict(alone) if self._differing(alone) else asdict(problem))

    def _differing(self, problem: PlacementProblem) -> dict[str, str]:
        """By waiting pod, what the schedulers say, where they differ."""
        embedded = EmbeddedCluster()
        placement_verdicts.create(embedded, problem)
        solver = placement_verdicts.solver_verdicts(embedded, problem)
        ours = placement_verdicts.scheduler_verdicts(embedded, problem)
        try:
            placement_verdicts.create(self._real, problem)
            real = placement_verdicts.scheduler_verdicts(self._real, problem)
        finally:
            self._real.clear()
        placed = placement_verdicts.PLACED
        self.tally.accepted += sum(verdict == placed for verdict in real.values())
        return {
            name: f"real: {verdict}; embedded: {ours[name]}; solver: {solver[name]}"
            for name, verdict in real.items()
            if verdict != ours[name] or (verdict == placed) != (solver[name] == placed)
        }


class EvictionComparison:
    """Asks both eviction APIs and Tenon whether pods may be evicted."""

    def __init__(self, real: RealServer, store: Store) -> None:
        self._real = real
        self._store = store
        self.tally = Tally()

    def findings(self, seed: int) -> Iterator[Finding]:
        """The differences of one problem."""
        problem = random_evictions.random_problem(seed)
        embedded = random_evictions.UndisturbedStore()
        random_evictions.create(embedded, problem)
        random_evictions.create(self._store, problem)
        real = random_evictions.api_verdicts(self._real.ask, problem)
        ours = random_evictions.api_verdicts(EmbeddedServer(embedded).ask, problem)
        tenon = random_evictions.tenon_verdicts(self._store, problem)
        self.tally.judged += len(real)
        self.tally.accepted += sum(verdict == random_evictions.ALLOWED for verdict in real.values())
        for number, pod in enumerate(problem.pods):
            name = pod["metadata"]["name"]
            if not real[name] == ours[name] == tenon[name]:
                text = f"{name}: real {real[name]}, embedded {ours[name]}, Tenon {tenon[name]}"
                yield Finding(seed, number, text, {"pod": pod, "budgets": list(problem.budgets)})
