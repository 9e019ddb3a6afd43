"""What a run costs, by the prices that Tenon's catalog has."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from infra import function_sizes
from shared.base.settings import variable
from shared.base.struct import Struct
from shared.instance_types import catalog_store
from shared.instance_types.catalog_store import CatalogMissingError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from cli.verify.steps import Step
    from cli.verify.verification import Verification

NODE_TYPE = "m5.large"
"""Nodes count as this type on demand: the run's NodePool allows cheaper ones, and Tenon takes them."""
_ASSUMED_PRICE = 0.12
"""USD per hour of that type where the catalog has no price: us-east-1's is 0.096."""
_FIS_USD = 0.20
"""Two action-minutes at 0.10 (aws.amazon.com/fis/pricing); the notice of an interruption is two minutes."""


class Cost(Struct, kw_only=True):
    """USD at most, and how long it usually takes."""

    usd: float
    minutes: float


def estimate(run: Verification, steps: Iterable[Step], configurations: Mapping[str, Mapping[str, Any]]) -> Cost:
    """The cost of these steps."""
    steps = list(steps)
    price = _price(run, configurations)
    node_hours = sum(step.node_minutes for step in steps) / 60
    fis = _FIS_USD if run.settings.fis_role else 0.0
    return Cost(usd=round(price * node_hours + fis, 3), minutes=sum(step.minutes for step in steps))


def _price(run: Verification, configurations: Mapping[str, Mapping[str, Any]]) -> float:
    environ = configurations.get(function_sizes.PROVISIONER, {}).get("Environment", {}).get("Variables", {})
    bucket = environ.get(variable("catalog_bucket"), "")
    with contextlib.suppress(BotoCoreError, ClientError, CatalogMissingError):
        catalog = catalog_store.load(run.aws("s3"), bucket, max_age=None)
        return catalog.on_demand.get(NODE_TYPE, _ASSUMED_PRICE)
    return _ASSUMED_PRICE
