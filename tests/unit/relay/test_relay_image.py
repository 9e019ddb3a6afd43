"""The relay's image installs the locked versions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
_PIN = re.compile(r"^([a-z0-9.-]+)==([^\s;\\]+)", re.MULTILINE)


def pins(path: Path) -> dict[str, str]:
    return dict(_PIN.findall(path.read_text()))


def test_every_package_of_the_image_is_at_its_locked_version() -> None:
    locked = pins(ROOT / "requirements.lock")
    installed = pins(ROOT / "relay/requirements.txt")
    assert installed
    assert {name: version for name, version in installed.items() if locked.get(name) != version} == {}


@pytest.mark.parametrize("package", ["boto3", "kubernetes", "msgspec", "urllib3"])
def test_what_the_relay_imports_is_in_the_image(package: str) -> None:
    assert package in pins(ROOT / "relay/requirements.txt")


def test_every_file_that_the_image_copies_is_there() -> None:
    sources = re.findall(r"^COPY (?!--from)(\S+) ", (ROOT / "relay/Dockerfile").read_text(), re.MULTILINE)
    assert sources
    assert [source for source in sources if not (ROOT / source).exists()] == []
