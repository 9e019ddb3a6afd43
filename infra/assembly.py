"""The cloud assembly as a folder: made by ``make synth`` and ``cdk deploy``, and kept for the local world.

Starting the CDK takes seconds, so the local world keeps its assembly under a key of all that its template depends on:
infra/'s sources, the functions' settings, the CDK's versions, and the context. The functions' code is not part of
that: it is run from the checkout.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from infra import bundling, function_sizes
from infra import stack_options as options_

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKOUT = Path(__file__).resolve().parent.parent
_TEMPLATE_SOURCES = (
    "infra",
    "shared/api/labels.py",
    "shared/hints.py",
    "shared/metrics.py",
    "shared/settings.py",
    *(f"functions/{function}/settings.py" for function in function_sizes.FUNCTIONS),
)
_CODE_SOURCES = ("functions", "relay", "shared", "requirements.lock")


def make(
    *, context: Mapping[str, object], out: Path | None, account: str | None = None, region: str | None = None
) -> Path:
    """Write the assembly of every cluster that the context names, and return its folder.

    What the CDK's CLI put into the environment (context, the folder when ``out`` is None) counts too. Without account
    and region the templates fit any.

    Raises:
        OptionError: a context value that can't be used.
        BundleError: the functions' code can't be put together (``bundle`` "full" only).
    """
    from aws_cdk import App, Environment  # noqa: PLC0415  starts Node.js: not for those whose assembly is kept

    from infra.stack import TenonStack  # noqa: PLC0415  the same

    app = App(outdir=str(out) if out else None, context=dict(context), analytics_reporting=False)
    said = {key: value for key in options_.KEYS if (value := app.node.try_get_context(key)) is not None}
    env = Environment(account=account, region=region) if account or region else None
    for cluster in options_.clusters(said):
        options = options_.parse(said, cluster=cluster)
        code = bundling.bundles(CHECKOUT, mode=options.bundle)
        TenonStack(app, options=options, code={name: str(path) for name, path in code.items()}, env=env)
    return Path(app.synth().directory)


def synthesise(*, cluster: str, out: Path, context: Mapping[str, str] | None = None) -> Path:
    """Write one cluster's assembly, for any account and Region, to ``out`` and return it.

    Raises:
        OptionError: a context value that can't be used.
        BundleError: the functions' code can't be put together (``bundle`` "full" only).
    """
    return make(context={**(context or {}), "cluster": cluster}, out=out)


def cached(*, cluster: str, root: Path, context: Mapping[str, str] | None = None) -> Path:
    """The assembly under ``root/build/assembly``, made if it isn't there. Safe for several processes at once.

    Raises:
        OptionError: a context value that can't be used.
        BundleError: the functions' code can't be put together (``bundle`` "full" only).
    """
    context = dict(context or {})
    kept = root / "build" / "assembly" / _key(cluster, context)
    if kept.is_dir():
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".making-") as making:
        made = synthesise(cluster=cluster, out=Path(making) / "assembly", context=context)
        with contextlib.suppress(OSError):  # another process was quicker: its assembly is the same
            made.rename(kept)
    if not kept.is_dir():
        raise FileNotFoundError(f"{kept}: the assembly could not be put there")
    return kept


def _key(cluster: str, context: Mapping[str, str]) -> str:
    sources = list(_TEMPLATE_SOURCES)
    if context.get("bundle", "full") == "full" or context.get("clusterSide", "applied") == "applied":
        sources += _CODE_SOURCES  # for the functions' bundles; for the kinds and the relay's image
    digest = hashlib.sha256()
    versions = {name: importlib.metadata.version(name) for name in ("aws-cdk-lib", "constructs")}
    digest.update(json.dumps([cluster, dict(sorted(context.items())), versions]).encode())
    for source in sources:
        for path in _files(CHECKOUT / source):
            digest.update(f"{path.relative_to(CHECKOUT)}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _files(source: Path) -> list[Path]:
    if source.is_file():
        return [source]
    return sorted(path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
