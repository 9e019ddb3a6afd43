"""Reserved Instances and Savings Plans, which moto lacks: purchases of the account, and EC2's and AWS's answers.

A purchase is kept as AWS describes it, so that a test can make it as odd as AWS's answers may be. Rates of a Savings
Plan are list prices less a discount, for Linux and for others, in pages as AWS's.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from local.aws.interceptor import RawResponse, json_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from local.aws.prices import Prices

YEAR = timedelta(days=365)
_PAGE_SIZE = 1000
_USAGE = (
    ("Linux/UNIX", "shared", "BoxUsage", 1.0),
    ("Linux/UNIX", "shared", "UnusedBox", 1.0),
    ("Linux/UNIX", "dedicated", "DedicatedUsage", 1.1),
    ("Windows (Amazon VPC)", "shared", "BoxUsage", 1.8),
)
"""Product, tenancy, usage type, and the rate as a multiple of the one for Linux."""


class Purchases:
    """The account's purchases; tests add to them while the world runs."""

    def __init__(self, *, prices: Prices, region: str, now: Callable[[], datetime]) -> None:
        self._prices = prices
        self._region = region
        self._now = now
        self._discounts: dict[str, float] = {}
        self.reserved: list[dict[str, Any]] = []
        """As DescribeReservedInstances describes them."""
        self.plans: list[dict[str, Any]] = []
        """As DescribeSavingsPlans describes them."""

    def reserve(
        self, instance_type: str, count: int, *, zone: str = "", discount: float = 0.4, **changes: object
    ) -> str:
        """Buy Reserved Instances for a year, without upfront payment; regional without a zone. Returns their id.

        ``changes`` are fields of the description that differ.
        """
        id_ = f"ri-{len(self.reserved) + 1:017x}"
        hourly = round(self._prices.on_demand(instance_type) * (1 - discount), 6)
        self.reserved.append(
            {
                "reservedInstancesId": id_,
                "instanceType": instance_type,
                "scope": "Availability Zone" if zone else "Region",
                "availabilityZone": zone,
                "start": _timestamp(self._now()),
                "end": _timestamp(self._now() + YEAR),
                "duration": int(YEAR.total_seconds()),
                "fixedPrice": 0.0,
                "usagePrice": 0.0,
                "instanceCount": count,
                "productDescription": "Linux/UNIX",
                "state": "active",
                "instanceTenancy": "default",
                "currencyCode": "USD",
                "offeringClass": "standard",
                "offeringType": "No Upfront",
                "recurringCharges": [{"frequency": "Hourly", "amount": hourly}],
                **changes,
            }
        )
        return id_

    def commit(self, hourly: float, *, family: str = "", discount: float = 0.3, **changes: object) -> str:
        """Buy a Savings Plan of that many USD per hour for a year: of a family, else for Compute. Returns its id.

        ``changes`` are fields of the description that differ.
        """
        id_ = f"sp-{len(self.plans) + 1:08x}"
        self._discounts[id_] = discount
        own = {"region": self._region, "ec2InstanceFamily": family} if family else {}
        self.plans.append(
            {
                "savingsPlanId": id_,
                "savingsPlanType": "EC2Instance" if family else "Compute",
                "state": "active",
                "start": _timestamp(self._now()),
                "end": _timestamp(self._now() + YEAR),
                "paymentOption": "No Upfront",
                "productTypes": ["EC2"] if family else ["EC2", "Fargate", "Lambda"],
                "currency": "USD",
                "commitment": f"{hourly:.8f}",
                "upfrontPaymentAmount": "0.0",
                "recurringPaymentAmount": f"{hourly:.8f}",
                "termDurationInSeconds": int(YEAR.total_seconds()),
                **own,
                **changes,
            }
        )
        return id_

    def describe_reserved_instances(self, body: bytes) -> RawResponse:
        """EC2's DescribeReservedInstances, with the filter ``state``."""
        query = {key: values[0] for key, values in parse_qs(body.decode()).items()}
        states = [value for key, value in query.items() if key.startswith("Filter.1.Value.")]
        if query.get("Filter.1.Name", "state") != "state" or "Filter.2.Name" in query:
            raise LookupError("DescribeReservedInstances: only the filter state is supported here")
        items = "".join(_xml(purchase) for purchase in self.reserved if not states or purchase["state"] in states)
        answer = f"<reservedInstancesSet>{items}</reservedInstancesSet>"
        return 200, {}, f"<DescribeReservedInstancesResponse>{answer}</DescribeReservedInstancesResponse>".encode()

    def serve(self, operation: str, body: bytes) -> RawResponse:
        """The response of ``savingsplans`` to an operation; an error for those that nothing here calls."""
        request = json.loads(body or b"{}")
        match operation:
            case "DescribeSavingsPlans":
                states = request.get("states")
                plans = [plan for plan in self.plans if not states or plan.get("state") in states]
                return _page(plans, "savingsPlans", request)
            case "DescribeSavingsPlanRates":
                plan = next((p for p in self.plans if p.get("savingsPlanId") == request["savingsPlanId"]), None)
                if plan is None:
                    return json_error(404, "ResourceNotFoundException", "no such Savings Plan here")
                filters = {item["name"]: item["values"] for item in request.get("filters", ())}
                results = [rate for rate in self._rates(plan) if _matches(rate, filters)]
                return _page(results, "searchResults", request)
        return json_error(400, "ValidationException", f"{operation} is not supported here")

    def _rates(self, plan: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        from moto.ec2.models.instance_types import INSTANCE_TYPES

        factor = 1 - self._discounts.get(str(plan.get("savingsPlanId")), 0.0)
        for name in sorted(INSTANCE_TYPES):
            family = name.partition(".")[0]
            if plan.get("ec2InstanceFamily", family) != family:
                continue
            for product, tenancy, usage, multiple in _USAGE:
                yield {
                    "rate": f"{self._prices.on_demand(name) * factor * multiple:.10f}",
                    "currency": "USD",
                    "unit": "Hrs",
                    "productType": "EC2",
                    "serviceCode": "AmazonEC2",
                    "usageType": f"{usage}:{name}",
                    "operation": "RunInstances" if product == "Linux/UNIX" else "RunInstances:0002",
                    "properties": [
                        {"name": "region", "value": self._region},
                        {"name": "instanceType", "value": name},
                        {"name": "instanceFamily", "value": family},
                        {"name": "productDescription", "value": product},
                        {"name": "tenancy", "value": tenancy},
                    ],
                }


def _matches(rate: Mapping[str, Any], filters: Mapping[str, list[str]]) -> bool:
    properties = {item["name"]: item["value"] for item in rate["properties"]}
    return all((properties.get(name) or rate.get(name)) in values for name, values in filters.items())


def _page(results: list[dict[str, Any]], key: str, request: Mapping[str, Any]) -> RawResponse:
    start = int(request.get("nextToken") or 0)
    end = start + min(int(request.get("maxResults", _PAGE_SIZE)), _PAGE_SIZE)
    page: dict[str, Any] = {key: results[start:end]}
    if end < len(results):
        page["nextToken"] = str(end)
    return 200, {"content-type": "application/json"}, json.dumps(page).encode()


def _xml(purchase: Mapping[str, Any]) -> str:
    fields = "".join(f"<{name}>{_value(value)}</{name}>" for name, value in purchase.items() if value not in ("", None))
    return f"<item>{fields}</item>"


def _value(value: Any) -> str:
    return "".join(map(_xml, value)) if isinstance(value, list) else escape(str(value))


def _timestamp(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
