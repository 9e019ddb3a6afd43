"""``kubectl tenon …``: kubectl runs ``kubectl-tenon`` for it, and ``kubectl_complete-tenon`` to complete it.

Both are scripts of the package (pyproject.toml). kubectl hands on every argument after the plugin's name, so options
such as ``--context``, ``--kubeconfig`` and ``-n`` mean what they mean to kubectl.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.errors import UsageError, errors_as_one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_EXAMPLE = re.compile(r"^(\s+)tenon ", re.MULTILINE)
_COMPLETE_VARIABLE = "_TENON_COMPLETE"
_FILES, _NO_FILES = 0, 4
"""Cobra's directives for what completes a word: files too, or these words only."""
Kubeconfig = Annotated[
    Path | None, typer.Option("--kubeconfig", metavar="FILE", help="The kubeconfig file; default: KUBECONFIG.")
]


def with_kubeconfig(command: Callable[..., None]) -> Callable[..., None]:
    """The command with option ``--kubeconfig``, if it has ``--context``: both choose the cluster as kubectl does."""
    signature = inspect.signature(command, eval_str=True)
    if "context" not in signature.parameters or "kubeconfig" in signature.parameters:
        return command

    @functools.wraps(command)
    def wrapped(*arguments: Any, kubeconfig: Path | None = None, **options: Any) -> None:  # noqa: ANN401 (the command's)
        with _environment(command.__name__, kubeconfig):
            command(*arguments, **options)

    parameters = list(signature.parameters.values())
    parameters.insert(
        [*signature.parameters].index("context") + 1,
        inspect.Parameter("kubeconfig", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Kubeconfig),
    )
    # an option may stand between positional ones for a command line, though not for Python
    ordered = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    wrapped.__signature__ = signature.replace(parameters=ordered)  # type: ignore[attr-defined] # inspect reads it
    wrapped.__annotations__ = {**command.__annotations__, "kubeconfig": Kubeconfig}
    return wrapped


@contextlib.contextmanager
def _environment(command: str, kubeconfig: Path | None) -> Iterator[None]:
    """With this file as ``KUBECONFIG``, which also programs that give tokens see."""
    if kubeconfig is None:
        yield
        return
    with errors_as_one_line(command.replace("_", "-")):
        if not kubeconfig.exists():
            raise UsageError(f"--kubeconfig {kubeconfig}: No such file or directory")
    before = os.environ.get("KUBECONFIG")
    os.environ["KUBECONFIG"] = str(kubeconfig)
    try:
        yield
    finally:
        if before is None:
            del os.environ["KUBECONFIG"]
        else:
            os.environ["KUBECONFIG"] = before


def present(app: typer.Typer, program: str) -> None:
    """Let the examples in the help of all commands begin with the program's name."""
    for group in (app, *(g.typer_instance for g in app.registered_groups)):
        for info in group.registered_commands if group is not None else ():
            text = inspect.getdoc(info.callback) if info.callback is not None else None
            info.help = _EXAMPLE.sub(rf"\1{program} ", text or "")


def complete(app: typer.Typer) -> None:
    """The words that complete a command line of ``kubectl tenon``, as kubectl reads them: Cobra's protocol."""
    *words, incomplete = sys.argv[1:] or [""]
    os.environ |= {
        _COMPLETE_VARIABLE: "complete_bash",
        "COMP_WORDS": shlex.join(["tenon", *words, *([incomplete] if incomplete else [])]),
        "COMP_CWORD": str(len(words) + 1),
    }
    completed = io.StringIO()
    with contextlib.redirect_stdout(completed), contextlib.suppress(SystemExit):
        app(prog_name="tenon", complete_var=_COMPLETE_VARIABLE)
    candidates = completed.getvalue().split()
    for candidate in candidates:
        sys.stdout.write(f"{candidate}\n")
    sys.stdout.write(f":{_NO_FILES if candidates else _FILES}\n")
