"""The ``tenon`` command. Exit codes: 0 success, 1 failure, 2 usage error, 130 interrupted."""

from __future__ import annotations

import errno
import importlib.metadata
import os
import sys
from typing import Annotated

import typer

from cli import kubectl_plugin, program
from cli.catalog.command import catalog
from cli.command_help import Command, Group
from cli.demo.command import demo
from cli.errors import FAILED
from cli.explain.command import explain
from cli.export.command import export
from cli.manifests.command import manifests
from cli.migrate.command import migrate
from cli.node_groups.command import node_groups
from cli.nodes.command import nodes
from cli.pause.command import pause, resume
from cli.plan.command import plan
from cli.preflight.command import preflight
from cli.printable import echo
from cli.report.command import report
from cli.rollback.command import rollback
from cli.schema.command import schema
from cli.shadow.command import shadow
from cli.simulate.command import simulate
from cli.status.command import status
from cli.template.command import publish, template
from cli.upgrade.command import upgrade_check
from cli.verify.command import verify

app = typer.Typer(
    name="tenon",
    cls=Group,
    help="Just-in-time nodes for Amazon EKS, with no controller in the cluster.",
    epilog="Exit codes: 0 success; 1 failure; 2 usage error; 130 interrupted. "
    "Colours are only used on a terminal, and never with NO_COLOR. docs/cli.md describes each command.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)


def _print_version(requested: bool) -> None:  # noqa: FBT001 (typer's callback)
    if requested:
        echo(f"tenon {importlib.metadata.version(program.DISTRIBUTION)}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print Tenon's version and exit."),
    ] = False,
) -> None:
    """Options of `tenon` itself."""


for command in (
    preflight, plan, explain, nodes, node_groups, report, status, pause, resume, simulate, manifests, template,
    publish, export, catalog, demo, schema, rollback, verify, upgrade_check,
):  # fmt: skip
    app.command(cls=Command)(kubectl_plugin.with_kubeconfig(command))
app.add_typer(migrate)
app.add_typer(shadow)


def run() -> None:
    """Run the command line, as ``tenon`` or as kubectl's plugin."""
    if program.name() == program.PLUGIN:
        kubectl_plugin.present(app, program.PLUGIN)
    try:
        app(prog_name=program.name())
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        sys.stderr.write(f"{program.name()}: the output can't be written: {error.strerror}\n")
        # what is still buffered would fail again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)


def complete() -> None:
    """Complete a command line of ``kubectl tenon``."""
    kubectl_plugin.complete(app)
