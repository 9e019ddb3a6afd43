"""The cloud assembly as a folder: ``make synth`` and ``cdk deploy`` create it, and the local world caches it.

Starting the CDK (synthesis.py) takes seconds, so the local world caches its assembly by everything that the template
depends on: infra/'s sources, the functions' settings, the CDK's versions, and the context. The functions' code is not
part of the key, because the local world runs it from the checkout.

A wheel has the assemblies of ``tenon demo`` (distribution/assets.py): the demo needs neither the CDK nor Node.js.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from infra import function_sizes, installation

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKOUT = installation.ROOT
IN_WHEEL = CHECKOUT / "infra" / "assemblies"
"""The assemblies of a wheel; a checkout has none."""
_TEMPLATE_SOURCES = (
    "infra",
    "shared/api/buffer_signals.py",
    "shared/api/labels.py",
    "shared/base/hints.py",
    "shared/base/metrics.py",
    "shared/base/settings.py",
    "shared/base/sweeps.py",
    *(f"functions/{function}/settings.py" for function in function_sizes.OF_ANY_MODE),
)
_CODE_SOURCES = ("functions", "relay", "shared", str(installation.lock(CHECKOUT)))


def synthesise(*, cluster: str, out: Path, context: Mapping[str, str] | None = None, region: str | None = None) -> Path:
    """Write one cluster's assembly to ``out`` and return it; without ``region``, for any account and Region.

    Raises:
        OptionError: a context value is invalid.
        BundleError: the functions' code can't be bundled (``bundle`` "full" only).
    """
    from infra import synthesis  # noqa: PLC0415 (starts Node.js, which a cached assembly doesn't need)

    return synthesis.make(context={**(context or {}), "cluster": cluster}, out=out, region=region)


def cached(*, cluster: str, root: Path, context: Mapping[str, str] | None = None, region: str | None = None) -> Path:
    """The assembly in the build folder of ``root``, created if it isn't cached. Concurrent processes are safe.

    ``cluster`` is "" for the context's list of clusters.

    Raises:
        OptionError: a context value is invalid.
        BundleError: the functions' code can't be bundled (``bundle`` "full" only).
        MissingExtraError: the assembly has to be synthesised, and the CDK isn't installed.
    """
    context = dict(context or {})
    in_wheel = IN_WHEEL / name_in_wheel(cluster, context, region)
    if in_wheel.is_dir():
        return in_wheel
    cached_folder = installation.build_folder(root) / "assembly" / _key(cluster, context, region)
    if cached_folder.is_dir():
        installation.keep_recent(cached_folder)
        return cached_folder
    cached_folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cached_folder.parent, prefix=".tmp-") as temporary:
        assembly = synthesise(cluster=cluster, out=Path(temporary) / "assembly", context=context, region=region)
        with contextlib.suppress(OSError):  # another process was faster; its assembly is the same
            assembly.rename(cached_folder)
    if not cached_folder.is_dir():
        raise FileNotFoundError(f"{cached_folder}: the assembly could not be created")
    return cached_folder


def name_in_wheel(cluster: str, context: Mapping[str, str], region: str | None = None) -> str:
    """The name of the assembly's folder in a wheel, whose sources and versions are fixed."""
    return hashlib.sha256(_inputs(cluster, context, region).encode()).hexdigest()[:16]


def _inputs(cluster: str, context: Mapping[str, str], region: str | None) -> str:
    return json.dumps([cluster, region, dict(sorted(context.items()))])


def _versions() -> dict[str, str]:
    installation.require("deploy", "synthesising the stack")
    return {name: importlib.metadata.version(name) for name in ("aws-cdk-lib", "constructs", installation.DISTRIBUTION)}


def _key(cluster: str, context: Mapping[str, str], region: str | None) -> str:
    sources = list(_TEMPLATE_SOURCES)
    if context.get("bundle") != "source" or context.get("clusterSide") != "printed":
        sources += _CODE_SOURCES  # for the functions' bundles; for the CustomResourceDefinitions and the relay's image
    digest = hashlib.sha256()
    digest.update(f"{_inputs(cluster, context, region)}{json.dumps(_versions())}".encode())
    if context.get("shadowPools"):
        sources.append(context["shadowPools"])
    for source in sources:
        for path in _files(CHECKOUT / source):
            digest.update(f"{path}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _files(source: Path) -> list[Path]:
    if source.is_file():
        return [source]
    return sorted(path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
