"""The engines that judge, each fetched or built once into build/ from pins next to what runs it.

None of them is ours: an IAM simulator on AWS's service authorization reference, the rule engine of EventBridge, and
Lambda's runtime interface emulator with its client for Python. They are tools of these tests only; nothing of them is
in the wheel or in a function.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from infra.bundle import bytecode
from local.real.go_build import CHECKOUT, Binary, BuildError

if TYPE_CHECKING:
    from collections.abc import Callable

_FOLDER = Path(__file__).parent
_BUILD = CHECKOUT / "build" / "aws-judges"
_SECONDS = 600
NAMESPACES = ("unshare", "--mount", "--pid", "--fork", "--kill-child", *(("--map-root-user",) if os.geteuid() else ()))
"""The command before one that runs with mounts and processes of its own, which end with it."""
_DEPENDENCIES = "org.apache.maven.plugins:maven-dependency-plugin:3.6.0:copy-dependencies"


class MissingToolError(RuntimeError):
    """An engine can't be used here; the message says which tool is missing."""


class EngineError(RuntimeError):
    """An engine can't be installed, though its tool is there; the message is the tool's."""


def iam() -> Path:
    """The folder with ``simulate.mjs`` and its packages.

    Raises:
        MissingToolError: there is no Node.js or npm.
        EngineError: npm can't install them.
    """
    _need("node", "npm")

    def install(folder: Path) -> None:
        _run(["npm", "ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund"], folder)

    return _installed("iam", install)


def event_rules() -> Path:
    """The folder with ``Judge.java``, and its packages in ``lib``.

    Raises:
        MissingToolError: there is no JDK or Maven.
        EngineError: Maven can't fetch them.
    """
    _need("javac", "mvn")

    def install(folder: Path) -> None:
        _run(["mvn", "--quiet", "--batch-mode", _DEPENDENCIES, f"-DoutputDirectory={folder / 'lib'}"], folder)

    return _installed("event_rules", install)


def runtime_client() -> Path:
    """The folder with the packages of Lambda's runtime client for Python.

    Raises:
        MissingToolError: there is no Python of Lambda's version.
        EngineError: pip can't install them.
    """
    python = lambda_python()

    def install(folder: Path) -> None:
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
        _run([*pip, "--target", str(folder / "packages"), "--requirement", "requirements.txt"], folder)

    return _installed("runtime", install) / "packages"


def runtime_emulator() -> Path:
    """The emulator's binary.

    Raises:
        MissingToolError: there is no Go.
        EngineError: Go can't build it.
    """
    _need("go")
    package = "github.com/aws/aws-lambda-runtime-interface-emulator/cmd/aws-lambda-rie"
    command = ("build", "-trimpath", "-ldflags=-s -w", package)
    module = _FOLDER / "runtime"
    try:
        return Binary(
            name="lambda-runtime-emulator", module=module, sources=("go.mod", "go.sum"), command=command
        ).built()
    except BuildError as error:
        raise EngineError(str(error)) from error


def lambda_python() -> str:
    """The Python of the version that Lambda runs: on PATH, or one of pyenv's.

    Raises:
        MissingToolError: it isn't installed.
    """
    if executable := bytecode.compiler().executable:
        return executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for candidate in sorted(pyenv.glob(f"versions/{bytecode.VERSION}.*/bin/python{bytecode.VERSION}")):
        return str(candidate)
    raise MissingToolError(f"Python {bytecode.VERSION} is not installed")


def sandbox() -> Path:
    """The script that runs a command as Lambda does.

    Raises:
        MissingToolError: this machine doesn't allow mount namespaces.
    """
    _need("unshare", "setpriv", "chroot")
    if subprocess.run([*NAMESPACES, "true"], capture_output=True, check=False).returncode:
        raise MissingToolError("unshare can't make a mount namespace here")
    return _FOLDER / "runtime" / "sandbox.sh"


def _need(*tools: str) -> None:
    for tool in tools:
        if not shutil.which(tool):
            raise MissingToolError(f"{tool} is not installed")


def _installed(name: str, install: Callable[[Path], None]) -> Path:
    """The folder of that name with what is installed in it: once for each content of its pins."""
    sources = sorted(path for path in (_FOLDER / name).iterdir() if path.is_file())
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    target = _BUILD / f"{name}-{digest}"
    _BUILD.mkdir(parents=True, exist_ok=True)
    with (_BUILD / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=_BUILD, prefix=".tmp-") as temporary:
                folder = Path(temporary) / "content"
                folder.mkdir()
                for path in sources:
                    shutil.copyfile(path, folder / path.name)
                install(folder)
                folder.rename(target)
    return target


def _run(command: list[str], folder: Path) -> None:
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.CalledProcessError as error:
        raise EngineError(f"{command[0]} failed: {(error.stderr or error.stdout)[-2000:]}") from error
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"{command[0]} has not ended within {_SECONDS} s") from error
