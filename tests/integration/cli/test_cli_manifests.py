"""`tenon manifests` prints the webhook's configuration for deployments whose cluster side users apply."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

from infra.cluster.kubernetes import webhook_configuration
from tests.integration.cli.command import call

if TYPE_CHECKING:
    from pathlib import Path

URL = "https://abc.lambda-url.eu-central-1.on.aws/"
SECRET = "0123456789abcdef" * 4


def test_the_configuration_has_the_url_and_the_path_and_no_relay_is_left(tmp_path: Path) -> None:
    path = tmp_path / "webhook-path"
    path.write_text(f"{SECRET}\n")
    result = call("manifests", "prod", "--webhook-url", URL, "--webhook-path", str(path))
    assert result.code == 0, result.err
    objects = list(yaml.safe_load_all(result.out))
    assert webhook_configuration.configuration(f"{URL}{SECRET}") in objects
    assert not [obj for obj in objects if "relay" in obj["metadata"]["name"]]


def test_without_the_webhook_no_configuration_is_printed() -> None:
    result = call("manifests", "prod")
    assert "ValidatingWebhookConfiguration" not in result.out
    assert "tenon-relay-function" in result.out


def test_half_of_the_url_or_a_guessable_path_is_refused(tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_text("secret")
    for arguments, why in (
        (("--webhook-url", URL), "give both"),
        (("--webhook-path", str(short)), "give both"),
        (("--webhook-url", URL, "--webhook-path", str(short)), "32 or more"),
        (("--webhook-url", URL, "--webhook-path", str(tmp_path / "none")), "No such file"),
    ):
        result = call("manifests", "prod", *arguments)
        assert result.code == 2
        assert why in result.err
        assert "secret" not in result.err


def test_names_of_every_partition_and_of_new_regions_are_accepted() -> None:
    role = "arn:aws-us-gov:iam::123456789012:role/path/relay+1"
    image = "123456789012.dkr.ecr.us-gov-west-1.amazonaws.com:443/team/tenon-relay:0.1.0@sha256:" + "0a" * 32
    result = call("manifests", "1-Prod_x", "--region", "us-gov-east-1", "--image", image, "--role-arn", role)
    assert result.code == 0, result.err
    assert role in result.out
    assert image in result.out
    assert call("manifests", "prod", "--region", "eu-central-7").code == 0
