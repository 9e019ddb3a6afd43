"""Objects generated from the published schemas, and evictions under random budgets, are answered as by a real server.

``python -m tests.real.differential --objects 20000 --evictions 2000`` does the same for as long as it is told.
"""

from __future__ import annotations

import json

from local.kubernetes.registry import published_types
from local.real import published_schemas
from tests.real.control_planes import api_server
from tests.real.differential.input_comparisons import EvictionComparison, ObjectComparison

OBJECTS = 1000
EVICTION_SEEDS = range(3)


def test_generated_objects_and_evictions_are_judged_alike(embedded_version: str) -> None:
    with api_server(embedded_version) as (server, store):
        objects, evictions = ObjectComparison(server), EvictionComparison(server, store)
        assert [str(finding) for finding in objects.findings(seed=1, count=OBJECTS)] == []
        assert [str(finding) for seed in EVICTION_SEEDS for finding in evictions.findings(seed)] == []
        assert objects.tally.judged == OBJECTS
        assert objects.tally.accepted > OBJECTS / 5
        assert evictions.tally.judged / 4 < evictions.tally.accepted < evictions.tally.judged
        kept = json.loads(published_types.FILE.read_bytes())
        assert published_schemas.read(server.get) == kept, published_schemas.__doc__
