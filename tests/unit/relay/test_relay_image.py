"""The relay's image installs the locked versions."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


def test_every_requirement_of_the_images_packages_is_in_the_list() -> None:
    """pip installs the list without dependencies, because it can't check another architecture's packages."""
    installed = pins(ROOT / "relay/requirements.txt")
    environment = {key: str(value) for key, value in default_environment().items()}
    environment |= {"sys_platform": "linux", "platform_system": "Linux", "extra": ""}
    environment |= {"python_version": "3.13", "python_full_version": "3.13.0"}
    missing = {
        (name, requirement.name)
        for name in installed
        for text in importlib.metadata.requires(name) or ()
        if (requirement := Requirement(text)).marker is None or requirement.marker.evaluate(environment)
        if canonicalize_name(requirement.name) not in installed
    }
    assert missing == set()


def test_every_file_that_the_image_copies_is_there() -> None:
    sources = re.findall(r"^COPY (?!--from)(\S+) ", (ROOT / "relay/Dockerfile").read_text(), re.MULTILINE)
    assert sources
    assert [source for source in sources if not (ROOT / source).exists()] == []
