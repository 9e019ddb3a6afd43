"""The catalog function, with moto's EC2 and S3 and our own price list."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from moto import mock_aws

from functions.catalog.handler import handle
from shared.api.nodeclass import EC2NodeClass
from shared.base import aws, hints, runtime
from shared.base.blobs import BlobForm
from shared.base.struct import with_fields
from shared.instance_types import catalog_store
from shared.instance_types.provider import build_instance_types

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.instance_types.catalog import InstanceTypeCatalog

BUCKET, CLUSTER = "tenon-catalog", "demo"
TYPES = ("t3.medium", "m7g.large", "m5.large", "m5.xlarge", "r5.large", "g5.xlarge", "mac2.metal")
"""Those that EC2 has here: all of them would take seconds a test."""
START = datetime(2026, 11, 21, 12, tzinfo=UTC)
CONTEXT: Any = SimpleNamespace(
    function_name="catalog",
    memory_limit_in_mb=512,
    invoked_function_arn="arn",
    aws_request_id="request",
    get_remaining_time_in_millis=lambda: 300_000,
)


class World:
    """The price list, what was called, and the time."""

    def __init__(self) -> None:
        self.now = START
        self.prices: dict[str, float] | None = {"m5.large": 0.096, "m5.xlarge": 0.192}
        self.spot_prices: dict[tuple[str, str], str] = {}
        self.calls: list[str] = []
        self.currency = "USD"
        self.pricing_regions: set[str] = set()

    def watch(self, region: str = "us-east-1") -> None:
        for client in (aws.ec2(), aws.pricing(region)):
            client.meta.events.register("before-call", self._count)
        for call in ("DescribeInstanceTypes", "DescribeInstanceTypeOfferings", "DescribeSpotPriceHistory"):
            aws.ec2().meta.events.register(f"before-parameter-build.ec2.{call}", self._few)
        aws.ec2().meta.events.register("after-call.ec2.DescribeSpotPriceHistory", self._spot_price_history)
        aws.pricing(region).meta.events.register("before-call.pricing.GetProducts", self._get_products)

    def _count(self, model: Any, **_: object) -> None:
        self.calls.append(model.name)

    def _few(self, params: dict[str, Any], model: Any, **_: object) -> None:
        if model.name == "DescribeInstanceTypeOfferings":
            params["Filters"] = [{"Name": "instance-type", "Values": list(TYPES)}]
        else:
            params["InstanceTypes"] = list(TYPES)

    def _spot_price_history(self, parsed: dict[str, Any], **_: object) -> None:
        for entry in parsed["SpotPriceHistory"]:  # moto's are of no machine
            entry["SpotPrice"] = self.spot_prices.get((entry["InstanceType"], entry["AvailabilityZone"]), "0.04")

    def _get_products(self, params: dict[str, Any], **_: object) -> Any:
        self.pricing_regions.add(params["url"].removeprefix("https://"))
        if self.prices is None:
            error = {"Code": "AccessDeniedException", "Message": "not authorized to perform: pricing:GetProducts"}
            return SimpleNamespace(status_code=400), {"Error": error, "ResponseMetadata": {"HTTPStatusCode": 400}}
        listed = [
            json.dumps(
                {
                    "product": {"attributes": {"instanceType": name}},
                    "terms": {
                        "OnDemand": {
                            "t": {"priceDimensions": {"d": {"pricePerUnit": {self.currency: str(price)}}}},
                            "free": {"priceDimensions": {"d": {"pricePerUnit": {self.currency: "0.0000000000"}}}},
                        }
                    },
                }
            )
            for name, price in self.prices.items()
        ]
        return SimpleNamespace(status_code=200), {
            "PriceList": [*listed, '{"product": {}}', "no JSON"],
            "ResponseMetadata": {"HTTPStatusCode": 200},
        }

    def run(self, event: dict[str, Any]) -> InstanceTypeCatalog:
        self.calls.clear()
        handle(event, CONTEXT)
        return self.load()

    def load(self) -> InstanceTypeCatalog:
        return catalog_store.load(aws.s3(), BUCKET, max_age=None)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with world_in("us-east-1", monkeypatch) as catalog_world:
        yield catalog_world


@contextlib.contextmanager
def world_in(region: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", region)
    catalog_world = World()
    environ = {"TENON_CLUSTER_NAME": CLUSTER, "TENON_CATALOG_BUCKET": BUCKET}
    with mock_aws(), runtime.using(runtime.Runtime(environ=environ, now=lambda: catalog_world.now)):
        placed: Any = {"CreateBucketConfiguration": {"LocationConstraint": region}} if region != "us-east-1" else {}
        aws.s3().create_bucket(Bucket=BUCKET, **placed)
        catalog_world.watch(region)
        yield catalog_world


def missing() -> dict[str, Any]:
    return {"source": hints.FUNCTIONS, "detail-type": hints.CATALOG_MISSING, "detail": {"cluster": CLUSTER, "keys": []}}


def test_a_missing_catalog_is_fetched_completely(world: World) -> None:
    catalog = world.run(missing())
    assert [s.name for s in catalog.hardware] == sorted(set(TYPES) - {"mac2.metal"})
    assert catalog.zones["us-east-1a"].startswith("use1-az")
    assert catalog.on_demand == {"m5.large": 0.096, "m5.xlarge": 0.192}
    assert catalog.price_source == "aws"
    assert set(catalog.spot["m5.large"]) >= {"us-east-1a", "us-east-1b"}
    types = {
        t.name: t for t in build_instance_types(catalog, EC2NodeClass(), None, zones=["us-east-1a"], unavailable=())
    }
    assert {o.capacity_type: o.price for o in types["m5.large"].offerings} == {"on-demand": 0.096, "spot": 0.04}


def test_an_event_delivered_twice_fetches_nothing_the_second_time(world: World) -> None:
    world.run(missing())
    world.run({"refresh": "types"})
    world.run(missing())
    assert world.calls == []


def test_prices_are_refreshed_alone_and_types_only_after_half_a_day(world: World) -> None:
    world.run({"refresh": "types"})
    world.now += timedelta(minutes=15)
    assert world.run({"refresh": "prices"}).prices_at == world.now
    assert set(world.calls) == {"DescribeSpotPriceHistory"}
    world.now += timedelta(hours=12)
    assert world.run({"refresh": "types"}).types_at == world.now
    assert "DescribeInstanceTypes" in world.calls


def test_a_denied_price_list_keeps_the_last_good_prices(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.run({"refresh": "types"})
    world.prices = None
    world.now += timedelta(hours=12)
    capsys.readouterr()
    catalog = world.run({"refresh": "types"})
    assert catalog.price_source == "kept"
    assert catalog.on_demand["m5.large"] == 0.096
    assert '"tenon_catalog_prices_not_from_aws":[1.0]' in capsys.readouterr().out


def test_prices_are_kept_however_old_they_are(world: World) -> None:
    world.run({"refresh": "types"})
    world.prices = None
    world.now += timedelta(days=3)
    catalog = world.run({"refresh": "types"})
    assert (catalog.price_source, catalog.on_demand["m5.large"]) == ("kept", 0.096)


def test_without_any_price_list_the_embedded_ratios_keep_the_order(world: World) -> None:
    world.prices = None
    catalog = world.run({"refresh": "types"})
    assert catalog.price_source == "embedded"
    dear = [catalog.on_demand[name] for name in ("t3.medium", "m7g.large", "m5.large", "r5.large", "g5.xlarge")]
    assert dear == sorted(dear)
    world.prices = {"m5.large": 0.096}
    world.now += timedelta(minutes=15)
    assert world.run({"refresh": "prices"}).on_demand == {"m5.large": 0.096}


def test_prices_in_china_are_in_yuan_from_chinas_own_price_list(monkeypatch: pytest.MonkeyPatch) -> None:
    with world_in("cn-north-1", monkeypatch) as world:
        world.currency, world.prices = "CNY", {"m5.large": 0.689}
        catalog = world.run({"refresh": "types"})
        assert catalog.on_demand == {"m5.large": 0.689}
        assert catalog.price_source == "aws"
        assert world.pricing_regions == {"api.pricing.cn-northwest-1.amazonaws.com.cn/"}


def test_estimates_in_china_compare_with_spot_prices_in_yuan(monkeypatch: pytest.MonkeyPatch) -> None:
    estimates = {}
    for region in ("us-east-1", "cn-north-1"):
        with world_in(region, monkeypatch) as world:
            world.prices = None
            estimates[region] = world.run({"refresh": "types"}).on_demand
    dollars, yuan = estimates.values()
    assert all(5 * dollars[name] < price < 10 * dollars[name] for name, price in yuan.items())


def test_govcloud_has_no_price_list_and_that_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with world_in("us-gov-west-1", monkeypatch) as world:
        catalog = world.run({"refresh": "types"})
        assert (catalog.price_source, world.pricing_regions) == ("embedded", set())
        assert catalog.on_demand["m5.large"] > 0
        output = capsys.readouterr().out
        assert "tenon_catalog_stale_parts" not in output
        assert '"tenon_catalog_prices_not_from_aws":[1.0]' in output


@pytest.mark.parametrize("event", [{"refresh": "everything"}, {"detail": 3}, {}])
def test_a_malformed_event_is_counted_and_changes_nothing(
    world: World, event: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(catalog_store.CatalogMissingError):
        world.run(event)
    assert '"tenon_catalog_malformed_events":[1.0]' in capsys.readouterr().out


def test_a_catalog_that_is_too_old_counts_as_missing(world: World) -> None:
    world.run({"refresh": "types"})
    world.now += timedelta(days=2)
    with pytest.raises(catalog_store.CatalogMissingError, match="2 days"):
        catalog_store.load(aws.s3(), BUCKET, max_age=timedelta(days=1))


def test_a_malformed_catalog_counts_as_missing(world: World) -> None:
    aws.s3().put_object(Bucket=BUCKET, Key=catalog_store.KEY, Body=b"garbage")
    with pytest.raises(catalog_store.CatalogMissingError, match="not a catalog"):
        world.load()
    assert world.run(missing()).hardware


@pytest.mark.parametrize("price", [0.0000001, -0.096, 1e6, float("nan"), float("inf")])
def test_an_on_demand_price_that_cannot_be_true_is_replaced_by_the_one_before(world: World, price: float) -> None:
    before = world.run({"refresh": "types"}).on_demand
    assert world.prices is not None
    world.prices["m5.large"] = price
    world.prices["m5.xlarge"] = 0.2
    world.now += timedelta(hours=13)
    after = world.run({"refresh": "types"}).on_demand
    assert after["m5.xlarge"] == 0.2
    assert after.get("m5.large", before["m5.large"]) == before["m5.large"]


@pytest.mark.parametrize("price", ["0.0000", "-1", "1000000", "nan"])
def test_a_spot_price_that_cannot_be_true_offers_no_spot_there(world: World, price: str) -> None:
    before = world.run({"refresh": "types"}).spot
    world.spot_prices["m5.large", "us-east-1a"] = price
    world.now += timedelta(minutes=20)
    spot = world.run({"refresh": "prices"}).spot
    assert before["m5.large"].keys() - spot["m5.large"].keys() == {"us-east-1a"}
    assert {**spot, "m5.large": {}} == {**before, "m5.large": {}}


@pytest.mark.parametrize("damage", ["truncated", "a flipped bit", "empty", "another version"])
def test_a_damaged_catalog_is_not_used_and_a_warm_function_keeps_the_one_it_has(world: World, damage: str) -> None:
    good = world.run({"refresh": "types"})
    stored = aws.s3().get_object(Bucket=BUCKET, Key=catalog_store.KEY)["Body"].read()
    middle = len(stored) // 2
    damaged = {
        "truncated": stored[:middle],
        "a flipped bit": stored[:middle] + bytes([stored[middle] ^ 1]) + stored[middle + 1 :],
        "empty": b"",
        "another version": BlobForm(dict[str, int], version=99, noun="a catalog").encode({}),
    }[damage]
    aws.s3().put_object(Bucket=BUCKET, Key=catalog_store.KEY, Body=damaged)
    world.now += timedelta(minutes=6)
    assert world.load() == good
    with runtime.using(with_fields(runtime.current(), cache={})), pytest.raises(catalog_store.CatalogMissingError):
        world.load()
    world.now += timedelta(minutes=20)
    world.run({"refresh": "prices"})
    with runtime.using(with_fields(runtime.current(), cache={})):
        assert world.load().hardware == good.hardware
