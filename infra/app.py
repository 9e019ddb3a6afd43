"""The CDK app. ``cdk deploy`` runs it; ``python -m infra.app [-c key=value]...`` synthesises without the CDK's CLI.

The CLI passes the context and the output folder in environment variables. Without it, the context is cdk.json's and the
assembly is written to cdk.out/, in the working directory.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra import synthesis
from infra.bundle.bundling import report
from infra.options import context_keys, stack_options

if TYPE_CHECKING:
    from collections.abc import Sequence

CDK_JSON = Path("cdk.json")
_DEPLOY = "npx aws-cdk@2 deploy -c cluster=NAME (all cdk commands need it)"
_SYNTHESISE = "python -m infra.app -c cluster=NAME"


def _arguments(arguments: Sequence[str]) -> dict[str, str]:
    """The context of the command line.

    Raises:
        OptionError: an option has no value, or its key is unknown.
    """
    parser = argparse.ArgumentParser(prog="python -m infra.app", description="Write the cloud assembly.")
    parser.add_argument("-c", dest="context", action="append", default=[], metavar="KEY=VALUE", help="as in cdk -c")
    return context_keys.given(parser.parse_args(arguments).context)


def main(arguments: Sequence[str]) -> int:
    """Synthesise; the exit code."""
    environ = os.environ
    under_cli = "CDK_OUTDIR" in environ
    try:
        context: dict[str, Any] = {}
        if not under_cli and CDK_JSON.is_file():
            context = json.loads(CDK_JSON.read_text()).get("context", {})
        out = synthesis.make(
            context={**context, **_arguments(arguments)},
            out=None if under_cli else Path("cdk.out"),
            account=environ.get("CDK_DEFAULT_ACCOUNT"),
            region=environ.get("CDK_DEFAULT_REGION"),
        )
    except stack_options.NoClusterError:
        sys.stderr.write(f"no cluster: give its name, as in: {_DEPLOY if under_cli else _SYNTHESISE}\n")
        return 1
    except (stack_options.OptionError, *synthesis.FAILURES) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if not under_cli:
        sys.stdout.write(f"{report(out)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
