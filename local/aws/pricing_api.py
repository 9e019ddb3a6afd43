"""The Pricing API, which moto lacks: GetProducts for EC2 in AWS's format.

Only on-demand Linux instances: one product per type, filtered by TERM_MATCH on its attributes, in pages of 100.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from local.aws.interceptor import RawResponse, json_error

if TYPE_CHECKING:
    from local.aws.prices import Prices

_PAGE_SIZE = 100
_ON_DEMAND = "JRTCKXETXF"
_PER_HOUR = "6YS6EN2CT7"


def serve(operation: str, body: bytes, *, prices: Prices, region: str) -> RawResponse:
    """The response of ``pricing`` to an operation; an error for all but GetProducts of AmazonEC2."""
    request = json.loads(body or b"{}")
    if operation != "GetProducts":
        return json_error(400, "InvalidParameterException", f"{operation} is not supported here")
    if request.get("ServiceCode") != "AmazonEC2":
        return json_error(400, "NotFoundException", f"no such service here: {request.get('ServiceCode')}")
    filters = {item["Field"]: item["Value"] for item in request.get("Filters", [])}
    products = [
        product
        for product in _products(prices, region)
        if all(product["product"]["attributes"].get(name) == value for name, value in filters.items())
    ]
    start = int(request.get("NextToken", 0))
    size = min(int(request.get("MaxResults", _PAGE_SIZE)), _PAGE_SIZE)
    page: dict[str, Any] = {
        "FormatVersion": "aws_v1",
        "PriceList": [json.dumps(product) for product in products[start : start + size]],
    }
    if start + size < len(products):
        page["NextToken"] = str(start + size)
    return 200, {"content-type": "application/x-amz-json-1.1"}, json.dumps(page).encode()


def _products(prices: Prices, region: str) -> list[dict[str, Any]]:
    from moto.ec2.models.instance_types import INSTANCE_TYPES

    return [
        _product(name, type_info, prices.on_demand(name), region) for name, type_info in sorted(INSTANCE_TYPES.items())
    ]


def _product(name: str, type_info: dict[str, Any], price: float, region: str) -> dict[str, Any]:
    sku = hashlib.sha256(name.encode()).hexdigest()[:16].upper()
    return {
        "product": {
            "productFamily": "Compute Instance (bare metal)" if type_info.get("BareMetal") else "Compute Instance",
            "attributes": {
                "instanceType": name,
                "regionCode": region,
                "locationType": "AWS Region",
                "operatingSystem": "Linux",
                "tenancy": "Shared",
                "preInstalledSw": "NA",
                "capacitystatus": "Used",
                "licenseModel": "No License required",
                "marketoption": "OnDemand",
                "operation": "RunInstances",
                "servicecode": "AmazonEC2",
                "usagetype": f"BoxUsage:{name}",
                "vcpu": str(type_info["VCpuInfo"]["DefaultVCpus"]),
                "memory": f"{type_info['MemoryInfo']['SizeInMiB'] / 1024:g} GiB",
                "currentGeneration": "Yes" if type_info.get("CurrentGeneration") else "No",
            },
            "sku": sku,
        },
        "serviceCode": "AmazonEC2",
        "terms": {"OnDemand": {f"{sku}.{_ON_DEMAND}": _on_demand(name, sku, price)}},
        "version": "20261101000000",
        "publicationDate": "2026-11-01T00:00:00Z",
    }


def _on_demand(name: str, sku: str, price: float) -> dict[str, Any]:
    rate = f"{sku}.{_ON_DEMAND}.{_PER_HOUR}"
    dimension = {
        "unit": "Hrs",
        "beginRange": "0",
        "endRange": "Inf",
        "description": f"${price} per On Demand Linux {name} Instance Hour",
        "appliesTo": [],
        "rateCode": rate,
        "pricePerUnit": {"USD": f"{price:.10f}"},
    }
    return {
        "priceDimensions": {rate: dimension},
        "sku": sku,
        "effectiveDate": "2026-11-01T00:00:00Z",
        "offerTermCode": _ON_DEMAND,
        "termAttributes": {},
    }
