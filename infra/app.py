"""The CDK app. ``cdk deploy`` runs it; ``python -m infra.app [-c key=value]...`` synthesises without the CDK's CLI.

The CLI passes the context and the output folder in environment variables. Without it, the context is cdk.json's and the
assembly is written to cdk.out/.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra import assembly, context_keys, stack_options
from infra.bundling import BundleError, report
from infra.bytecode import CompileError
from infra.template_limits import LimitError

if TYPE_CHECKING:
    from collections.abc import Sequence

CDK_JSON = assembly.CHECKOUT / "cdk.json"


def _arguments(arguments: Sequence[str]) -> dict[str, str]:
    parser = argparse.ArgumentParser(prog="python -m infra.app", description="Write the cloud assembly.")
    parser.add_argument("-c", dest="context", action="append", default=[], metavar="KEY=VALUE", help="as in cdk -c")
    context: dict[str, str] = {}
    for pair in parser.parse_args(arguments).context:
        key, equals, value = pair.partition("=")
        if not equals or key not in context_keys.KEYS:
            parser.error(f"-c {pair}: must be KEY=VALUE with one of {', '.join(context_keys.KEYS)}")
        context[key] = value
    return context


def main(arguments: Sequence[str]) -> int:
    """Synthesise; the exit code."""
    environ = os.environ
    under_cli = "CDK_OUTDIR" in environ
    context: dict[str, Any] = {} if under_cli else json.loads(CDK_JSON.read_text())["context"]
    try:
        out = assembly.make(
            context={**context, **_arguments(arguments)},
            out=None if under_cli else Path("cdk.out"),
            account=environ.get("CDK_DEFAULT_ACCOUNT"),
            region=environ.get("CDK_DEFAULT_REGION"),
        )
    except (stack_options.OptionError, BundleError, CompileError, LimitError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if not under_cli:
        sys.stdout.write(f"{report(out)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
