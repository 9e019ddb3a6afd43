"""Compares the pinned versions with published advisories: ``make audit``.

pip-audit asks PyPI about each package. It is no dependency of Tenon's: it is installed by itself, pinned, into
build/audit. A package index that publishes no advisories answers 404, which pip-audit counts as "no known
vulnerabilities"; here that is an error, or with ``--if-reachable`` a line that says so.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parent.parent
_VERSION = "2.10.1"
_LOCK = _ROOT / "requirements.lock"
_VULNERABLE, _UNREACHABLE = 1, 2
Json = dict[str, Any]


def main(arguments: list[str]) -> int:
    """The exit code: 0 without known vulnerabilities, 1 with some, 2 if advisories can't be had."""
    lock = _LOCK.read_text(encoding="utf-8")
    try:
        tool = _tool(_ROOT / "build" / "audit" / _VERSION)
        probe = _audit(tool, _first_pin(lock))
    except subprocess.CalledProcessError as error:
        return _unreachable(f"pip-audit can't be installed, or ends without an answer: {error}", arguments)
    if unaudited(probe):
        return _unreachable("the package index publishes no advisories", arguments)
    answer = _audit(tool, lock)
    if names := unaudited(answer):
        return _unreachable(f"there is no answer about {', '.join(names)}", arguments)
    advisories = vulnerabilities(answer)
    sys.stdout.writelines(f"{line}\n" for line in advisories or ["no known vulnerabilities"])
    return _VULNERABLE if advisories else 0


def unaudited(answer: Json) -> list[str]:
    """The packages that nothing is known of, in pip-audit's answer."""
    return [package["name"] for package in answer["dependencies"] if "skip_reason" in package]


def vulnerabilities(answer: Json) -> list[str]:
    """A line for each advisory about a pinned version."""
    return [
        f"{package['name']} {package['version']}: {advisory['id']}, fixed in "
        f"{', '.join(advisory['fix_versions']) or 'no version yet'}"
        for package in answer["dependencies"]
        for advisory in package.get("vulns", ())
    ]


def _unreachable(why: str, arguments: list[str]) -> int:
    sys.stderr.write(f"The pinned versions were not compared with advisories: {why}\n")
    return 0 if "--if-reachable" in arguments else _UNREACHABLE


def _tool(folder: Path) -> Path:
    tool = folder / "bin" / "pip-audit"
    if not tool.is_file():
        venv.create(folder, with_pip=True, clear=True)
        command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", f"pip-audit=={_VERSION}"]
        subprocess.run(command, check=True, capture_output=True)  # noqa: S603 (our own arguments)
    return tool


def _first_pin(lock: str) -> str:
    """The lock's first package alone."""
    lines = lock.splitlines(keepends=True)
    first, end, *_ = (index for index, line in enumerate(lines) if "==" in line)
    return "".join(lines[first:end])


def _audit(tool: Path, requirements: str) -> Json:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "requirements.txt"
        path.write_text(requirements, encoding="utf-8")
        command = [str(tool), "--requirement", str(path), "--require-hashes", "--disable-pip", "--format", "json"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 (our own arguments)
    if not done.stdout.strip():
        raise subprocess.CalledProcessError(done.returncode, command, stderr=done.stderr)
    answer: Json = json.loads(done.stdout)
    return answer


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
