"""The CDK's synthesis: the stacks of all clusters in a context, as templates. To import this starts Node.js."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from aws_cdk import App, Environment, Stack

from infra import function_sizes, template_limits
from infra.bundle import bucket_template, bundling
from infra.bundle.bundling import BundleError
from infra.bundle.bytecode import CompileError
from infra.cluster.stack import TenonStack
from infra.fleet.stack import FleetStack
from infra.options import context_keys, stack_options
from infra.shadow.stack import ShadowStack
from infra.template_limits import LimitError

if TYPE_CHECKING:
    from collections.abc import Mapping

FAILURES = (BundleError, CompileError, LimitError)
"""Errors of valid options: each message says why there is no assembly."""


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
        CompileError: the functions' code isn't valid Python (the same).
        LimitError: AWS would reject a template.
    """
    app = App(
        outdir=str(out) if out else None,
        context=dict(context),
        analytics_reporting=False,
        default_stack_synthesizer=bucket_template.synthesizer() if for_any_bucket else None,
    )
    context_keys.check(app.node.get_all_context())
    stacks = _cluster_stacks(app, Environment(account=account, region=region) if account or region else None)
    if for_any_bucket:
        for stack in stacks:
            bucket_template.add_parameters(stack)
    folder = Path(app.synth().directory)
    place = template_limits.Place.of(region, account)
    for path in sorted(folder.glob("*.template.json")):
        name = path.name.removesuffix(".template.json")
        body = json.loads(path.read_text())
        template_limits.check(template_limits.Template(name=name, body=body, place=place))
    return folder


def _cluster_stacks(app: App, env: Environment | None) -> list[Stack]:
    """The stack of each cluster; before the first, that of their fleet is made."""
    context = {key: value for key in stack_options.KEYS if (value := app.node.try_get_context(key)) is not None}
    clusters = stack_options.clusters(context)
    fleet: Stack | None = None
    stacks: list[Stack] = []
    for cluster in clusters:
        options = stack_options.parse(context, cluster=cluster, region=env.region if env is not None else None)
        code = bundling.code(options)
        if options.fleet and fleet is None:
            asset = bundling.code(options, (function_sizes.CATALOG,))[function_sizes.CATALOG]
            fleet = FleetStack(app, options=options, clusters=clusters, code=asset, env=env)
        kind = ShadowStack if options.shadow else TenonStack
        stack = kind(app, options=options, code=code, env=env)
        if fleet is not None:
            stack.add_stack_dependency(fleet, "a cluster's stack imports the name of the catalog's bucket")
        stacks.append(stack)
    return stacks
