"""What is uploaded as each function's code."""

from __future__ import annotations

from pathlib import Path

from infra import sizes


class BundleError(RuntimeError):
    """A function's code can't be put together; the text says what is missing and what to do."""


def bundles(checkout: Path, *, mode: str) -> dict[str, Path]:
    """The folder of each function's code."""
    made = {}
    for function in sizes.FUNCTIONS:
        folder = checkout / "build" / "bundles" / "source" / function
        folder.mkdir(parents=True, exist_ok=True)
        text = f"functions/{function} runs from the checkout; this stands for its bundle.\n"
        (folder / "README").write_text(text)
        made[function] = folder
    return made


def report(out: Path) -> str:
    return f"{out}"
