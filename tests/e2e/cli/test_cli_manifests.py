"""`tenon manifests` prints the webhook's configuration for deployments whose cluster side users apply."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

from infra import webhook_configuration
from tests.e2e.cli.conftest import call

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
