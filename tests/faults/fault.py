"""The faults of faults.yaml, and a file's text with one of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import yaml

FOLDER = Path(__file__).parent
_NEAR = 30
"""How many lines above or below its line a fault's text may have moved."""


class FaultError(ValueError):
    """A fault's text isn't where faults.yaml says; the message says where it is."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A mistake in product code: ``before`` is the code as it is, ``after`` with the mistake.

    ``line`` is where ``before`` begins, or was when it was last looked at. ``sees`` is what a user would see.
    """

    id: str
    file: str
    line: int
    before: str
    after: str
    sees: str

    def applied(self, text: str) -> str:
        """The file's text with the mistake.

        Raises:
            FaultError: the code before isn't there, or more than once.
        """
        match = self._match(text)
        start = text.rfind("\n", 0, match.start()) + 1
        indent = re.match(r"[ \t]*", text[start:])
        assert indent is not None
        after = self.after.replace("\n", "\n" + indent[0])
        return text[: match.start()] + after + text[match.end() :]

    def _match(self, text: str) -> re.Match[str]:
        pattern = r"\n[ \t]*".join(re.escape(line.strip()) for line in self.before.splitlines())
        matches = {text.count("\n", 0, match.start()) + 1: match for match in re.finditer(pattern, text)}
        near = [line for line in matches if abs(line - self.line) <= _NEAR]
        if len(near) == 1:
            return matches[near[0]]
        lines = ", ".join(map(str, matches)) or "none"
        raise FaultError(
            f"fault {self.id}: its code must be in {self.file} once within {_NEAR} lines of line {self.line}; "
            f"lines with it: {lines}. Set file, line and before in {FOLDER.name}/faults.yaml as the code is now"
        )


def load() -> tuple[Fault, ...]:
    """All faults, in the file's order."""
    return tuple(Fault(**entry) for entry in yaml.safe_load((FOLDER / "faults.yaml").read_text()))
