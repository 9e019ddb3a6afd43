"""Writes bills of materials (CycloneDX 1.6, JSON): of the wheel, and of each function's bundle.

``python -m distribution.sbom FOLDER``; `make wheel` writes them into dist/sbom. They follow from requirements.lock and
package-lock.json alone, so that the same sources give the same bytes. What Lambda's runtime brings along (boto3,
botocore, s3transfer) is in no bundle, and so in no bill of one. CycloneDX: https://cyclonedx.org/docs/1.6/json/.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import sys
import tomllib
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from infra import function_sizes, installation
from infra.bundle import bundling, requirements_lock

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from infra.bundle.requirements_lock import Pin

_ROOT = installation.ROOT
Json = dict[str, Any]


def wheel() -> Json:
    """The bill of the wheel and its extras: dependencies in the versions of the lock, and what it has from npm."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = (project["optional-dependencies"][extra] for extra in installation.EXTRAS)
    texts = [*project["dependencies"], *itertools.chain.from_iterable(extras)]
    roots = sorted({canonicalize_name(Requirement(text).name) for text in texts})
    pins = _pins()
    components = [*_python(requirements_lock.closure(pins, roots)), _uplot()]
    return _bill(installation.DISTRIBUTION, project["version"], components, pins, roots)


def function(name: str) -> Json:
    """The bill of a function's bundle."""
    pins = _pins()
    chosen = bundling.packages_of(name, pins, _ROOT, importlib.metadata.packages_distributions())
    within = {pin.name for pin in chosen}
    roots = sorted(pin.name for pin in chosen if not pin.via & within)
    return _bill(f"tenon-{name}", _version(), _python(chosen), {pin.name: pin for pin in chosen}, roots)


def write(folder: Path) -> list[Path]:
    """Write all bills into the folder; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    bills = [wheel(), *(function(name) for name in sorted(function_sizes.OF_ANY_MODE))]
    paths = []
    for bill in bills:
        paths.append(folder / f"{bill['metadata']['component']['name']}.cdx.json")
        paths[-1].write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")
    return paths


def _pins() -> dict[str, Pin]:
    return requirements_lock.parse(installation.lock(_ROOT).read_text(encoding="utf-8"))


def _version() -> str:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def _bill(name: str, version: str, components: Sequence[Json], pins: Mapping[str, Pin], roots: Iterable[str]) -> Json:
    own = f"pkg:generic/{name}@{version}"  # no registry has it
    listed = {component["name"]: component["bom-ref"] for component in components}
    subject = {"type": "application", "bom-ref": own, "name": name, "version": version, "purl": own}
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**subject, "licenses": [{"expression": "Apache-2.0"}]}},
        "components": list(components),
        "dependencies": [
            {"ref": own, "dependsOn": [listed[root] for root in sorted(roots)]},
            *(
                {
                    "ref": ref,
                    "dependsOn": sorted(listed[p.name] for p in pins.values() if parent in p.via and p.name in listed),
                }
                for parent, ref in listed.items()
            ),
        ],
    }
    content = json.dumps(bill, sort_keys=True)
    return {**bill, "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}"}


def _python(pins: Iterable[Pin]) -> list[Json]:
    components = []
    for pin in pins:
        purl = f"pkg:pypi/{pin.name}@{pin.version}"
        component = {"type": "library", "bom-ref": purl, "name": pin.name, "version": pin.version, "purl": purl}
        components.append({**component, **_license(pin)})
    return components


def _license(pin: Pin) -> Json:
    """The license that the installed distribution of this version names, where that is one expression or name."""
    try:
        metadata = importlib.metadata.metadata(pin.name)
    except importlib.metadata.PackageNotFoundError:
        return {}
    if metadata["Version"] != pin.version:
        return {}
    if expression := metadata["License-Expression"]:
        return {"licenses": [{"expression": expression}]}
    name = metadata["License"] or ""
    return {"licenses": [{"license": {"name": name}}]} if name and "\n" not in name else {}


def _uplot() -> Json:
    """uPlot, the only package of npm that a wheel has files of."""
    locked = json.loads((_ROOT / "package-lock.json").read_text(encoding="utf-8"))["packages"]["node_modules/uplot"]
    purl = f"pkg:npm/uplot@{locked['version']}"
    component = {"type": "library", "bom-ref": purl, "name": "uplot", "version": locked["version"], "purl": purl}
    return {**component, "licenses": [{"license": {"name": locked.get("license", "MIT")}}]}


if __name__ == "__main__":
    sys.stdout.writelines(f"{path}\n" for path in write(Path(sys.argv[1])))
