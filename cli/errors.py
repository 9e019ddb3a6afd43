"""Errors of commands: one line on standard error that says what to do, and an exit code."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NoReturn

import typer

from cli import program
from cli.printable import echo

if TYPE_CHECKING:
    from collections.abc import Iterator

FAILED, USAGE, INTERRUPTED = 1, 2, 130
"""Exit codes: the command failed; a usage error; interrupted by Ctrl-C."""


class CommandError(RuntimeError):
    """A command failed. ``code`` is its exit code; the text says why and what to do."""

    def __init__(self, message: str, *, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


class UsageError(CommandError):
    """An object that doesn't exist, or an option or argument that isn't valid."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=USAGE)


@contextlib.contextmanager
def errors_as_one_line(command: str) -> Iterator[None]:
    """Turn errors inside into one line on standard error and an exit code."""
    try:
        yield
    except CommandError as error:
        _exit(command, str(error), error.code)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        # the reader of our output, such as head, closed the pipe
        raise typer.Exit(0) from None
    except Exception as error:
        from cli.error_messages import message_of  # noqa: PLC0415 (slow to import: the errors of AWS and Kubernetes)

        message = message_of(error)
        if message is None:
            raise
        _exit(command, message, FAILED)


def _exit(command: str, message: str, code: int) -> NoReturn:
    echo(f"{program.name()} {command}: {' '.join(message.split())}", err=True)
    raise typer.Exit(code)
