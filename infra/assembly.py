"""The cloud assembly as a folder: ``make synth`` and ``cdk deploy`` create it, and the local world caches it.

Starting the CDK takes seconds, so the local world caches its assembly by everything that the template depends on:
infra/'s sources, the functions' settings, the CDK's versions, and the context. The functions' code is not part of the
key, because the local world runs it from the checkout.

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

from infra import function_sizes, installation, template_limits
from infra.options import context_keys, stack_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aws_cdk import Stack

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


class CdkMissingError(RuntimeError):
    """The CDK isn't installed; the message says how to install it."""


def make(
    *,
    context: Mapping[str, object],
    out: Path | None,
    account: str | None = None,
    region: str | None = None,
    for_any_bucket: bool = False,
) -> Path:
    """Write the assembly with the stacks of all clusters in the context, and return its folder.

    The CDK's CLI passes context, and the folder if ``out`` is None, in the environment. Without account and region the
    templates are environment-agnostic. ``for_any_bucket``: the code is in a bucket that parameters name
    (bundle/bucket_template.py), instead of the CDK's.

    Raises:
        OptionError: a context value is invalid.
        BundleError: the functions' code can't be bundled (``bundle`` "full" only).
        LimitError: AWS would reject a template.
    """
    from aws_cdk import App, Environment  # noqa: PLC0415 (starts Node.js, which a cached assembly doesn't need)

    from infra.bundle import bucket_template, bundling  # noqa: PLC0415 (the same)
    from infra.cluster.stack import TenonStack  # noqa: PLC0415 (the same)
    from infra.fleet.stack import FleetStack  # noqa: PLC0415 (the same)
    from infra.shadow.stack import ShadowStack  # noqa: PLC0415 (the same)

    app = App(
        outdir=str(out) if out else None,
        context=dict(context),
        analytics_reporting=False,
        default_stack_synthesizer=bucket_template.synthesizer() if for_any_bucket else None,
    )
    context_keys.check(app.node.get_all_context())
    context_values = {key: value for key in stack_options.KEYS if (value := app.node.try_get_context(key)) is not None}
    env = Environment(account=account, region=region) if account or region else None
    fleet: Stack | None = None
    names = stack_options.clusters(context_values)
    for cluster in names:
        options = stack_options.parse(context_values, cluster=cluster, region=region)
        code = bundling.code(options)
        if options.fleet and fleet is None:
            asset = bundling.code(options, (function_sizes.CATALOG,))[function_sizes.CATALOG]
            fleet = FleetStack(app, options=options, clusters=names, code=asset, env=env)
        kind = ShadowStack if options.shadow else TenonStack
        stack = kind(app, options=options, code=code, env=env)
        if for_any_bucket:
            bucket_template.add_parameters(stack)
        if fleet is not None:
            stack.add_stack_dependency(fleet, "a cluster's stack imports the name of the catalog's bucket")
    folder = Path(app.synth().directory)
    place = template_limits.Place.of(region, account)
    for path in sorted(folder.glob("*.template.json")):
        body = json.loads(path.read_text())
        name = path.name.removesuffix(".template.json")
        template_limits.check(template_limits.Template(name=name, body=body, place=place))
    return folder


def synthesise(*, cluster: str, out: Path, context: Mapping[str, str] | None = None, region: str | None = None) -> Path:
    """Write one cluster's assembly to ``out`` and return it; without ``region``, for any account and Region.

    Raises:
        OptionError: a context value is invalid.
        BundleError: the functions' code can't be bundled (``bundle`` "full" only).
    """
    return make(context={**(context or {}), "cluster": cluster}, out=out, region=region)


def cached(*, cluster: str, root: Path, context: Mapping[str, str] | None = None, region: str | None = None) -> Path:
    """The assembly in the build folder of ``root``, created if it isn't cached. Concurrent processes are safe.

    ``cluster`` is "" for the context's list of clusters.

    Raises:
        OptionError: a context value is invalid.
        BundleError: the functions' code can't be bundled (``bundle`` "full" only).
        CdkMissingError: the assembly has to be synthesised, and the CDK isn't installed.
    """
    context = dict(context or {})
    in_wheel = IN_WHEEL / name_in_wheel(cluster, context, region)
    if in_wheel.is_dir():
        return in_wheel
    cached_folder = installation.build_folder(root) / "assembly" / _key(cluster, context, region)
    if cached_folder.is_dir():
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
    try:
        return {name: importlib.metadata.version(name) for name in ("aws-cdk-lib", "constructs")}
    except importlib.metadata.PackageNotFoundError as error:
        raise CdkMissingError(
            "synthesising the stack needs the AWS CDK: install Tenon with its extra infra, such as by "
            "`pipx install 'tenon[infra]'`"
        ) from error


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
