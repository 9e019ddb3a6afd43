"""The control plane's binary, built once by Go from the module in tests/real/control_plane.

The versions of Kubernetes and etcd are pinned by its go.mod and go.sum.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from local.real.go_build import CHECKOUT, Binary, BuildError

if TYPE_CHECKING:
    from pathlib import Path

MODULE = CHECKOUT / "tests" / "real" / "control_plane"


def built() -> Path:
    """The binary's path; it is built first if that hasn't been done (three minutes on two cores).

    Raises:
        BuildError: Go is not installed, or the build failed.
    """
    major, minor, _ = kubernetes_version().split(".")
    # As upstream's build does; otherwise the API server says that it is v0.0.0.
    versions = {"gitVersion": f"v{kubernetes_version()}", "gitMajor": major, "gitMinor": minor}
    stamps = " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in versions.items())
    return Binary(
        name="control-plane",
        module=MODULE,
        sources=("go.mod", "go.sum", "main.go"),
        command=("build", "-trimpath", f"-ldflags=-s -w {stamps}", "."),
    ).built()


def kubernetes_version() -> str:
    """The version of Kubernetes in go.mod, such as "1.36.2".

    Raises:
        BuildError: go.mod doesn't name it.
    """
    version = re.search(r"^\tk8s\.io/kubernetes v(\S+)$", (MODULE / "go.mod").read_text(), re.MULTILINE)
    if version is None:
        raise BuildError(f"{MODULE / 'go.mod'} doesn't require k8s.io/kubernetes")
    return version[1]
