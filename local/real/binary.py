"""The control plane's binary, built once by Go from the module in tests/real/control_plane.

The versions of Kubernetes and etcd are pinned by its go.mod and go.sum. A binary is kept in build/ under a hash of the
sources, so that a change of them builds another one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent.parent
MODULE = CHECKOUT / "tests" / "real" / "control_plane"
_SOURCES = ("go.mod", "go.sum", "main.go")
_BUILD = CHECKOUT / "build"
_BUILD_SECONDS = 1200
_PACKAGES_AT_ONCE = 2
"""More would need more than 4 GiB of memory."""


class BuildError(RuntimeError):
    """The control plane can't be built: there is no Go, or Go refused; the message says which."""


def go() -> str:
    """The path of the Go command; empty where Go is not installed."""
    return shutil.which("go") or ""


def built() -> Path:
    """The binary's path; it is built first if that hasn't been done (three minutes on two cores).

    Raises:
        BuildError: Go is not installed, or the build failed.
    """
    binary = _BUILD / f"control-plane-{_version()}"
    if binary.exists():
        return binary
    if not go():
        raise BuildError("the control plane is built by Go, which is not installed")
    _BUILD.mkdir(exist_ok=True)
    with (_BUILD / "control-plane.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not binary.exists():
            _build(binary)
    return binary


def _version() -> str:
    return hashlib.sha256(b"\0".join((MODULE / name).read_bytes() for name in _SOURCES)).hexdigest()[:12]


def kubernetes_version() -> str:
    """The version of Kubernetes in go.mod, such as "1.36.2".

    Raises:
        BuildError: go.mod doesn't name it.
    """
    version = re.search(r"^\tk8s\.io/kubernetes v(\S+)$", (MODULE / "go.mod").read_text(), re.MULTILINE)
    if version is None:
        raise BuildError(f"{MODULE / 'go.mod'} doesn't require k8s.io/kubernetes")
    return version[1]


def _build(binary: Path) -> None:
    partial = binary.with_suffix(f".{os.getpid()}")
    major, minor, _ = kubernetes_version().split(".")
    # As upstream's build does; otherwise the API server says that it is v0.0.0.
    versions = {"gitVersion": f"v{kubernetes_version()}", "gitMajor": major, "gitMinor": minor}
    stamps = " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in versions.items())
    packages = str(_PACKAGES_AT_ONCE)
    command = [go(), "build", "-p", packages, "-trimpath", f"-ldflags=-s -w {stamps}", "-o", str(partial), "."]
    try:
        subprocess.run(command, cwd=MODULE, check=True, capture_output=True, text=True, timeout=_BUILD_SECONDS)  # noqa: S603 - Go's own command
    except subprocess.CalledProcessError as error:
        raise BuildError(f"Go can't build the control plane: {error.stderr[-2000:]}") from error
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"Go has not built the control plane within {_BUILD_SECONDS} s") from error
    partial.rename(binary)
