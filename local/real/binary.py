"""The control plane's binaries, built once by Go from the module in tests/real/control_plane: one for each minor.

The module has one program. A minor's versions of Kubernetes and etcd are pinned by its own kubernetes-MINOR.mod and
kubernetes-MINOR.sum, which Go reads in place of go.mod and go.sum.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from local.real.go_build import CHECKOUT, Binary, BuildError

if TYPE_CHECKING:
    from pathlib import Path

MODULE = CHECKOUT / "tests" / "real" / "control_plane"
MINORS = ("1.36", "1.37")
EMBEDDED = "1.36"
"""The minor whose API the embedded server has, so the one that it is compared with."""


def built(minor: str = EMBEDDED) -> Path:
    """The binary's path; it is built first if that hasn't been done (five minutes on two cores).

    Raises:
        BuildError: Go is not installed, there is no such minor, or the build failed.
    """
    version = kubernetes_version(minor)
    major, minor_number, _ = version.split(".")
    # As upstream's build does; otherwise the API server says that it is v0.0.0.
    versions = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor_number}
    stamps = " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in versions.items())
    pins = f"kubernetes-{minor}"
    return Binary(
        name=f"control-plane-{minor}",
        module=MODULE,
        sources=(f"{pins}.mod", f"{pins}.sum", "main.go"),
        command=("build", "-trimpath", f"-modfile={pins}.mod", f"-ldflags=-s -w {stamps}", "."),
    ).built()


def kubernetes_version(minor: str = EMBEDDED) -> str:
    """The version of Kubernetes that a minor's binary is built from, such as "1.37.2".

    Raises:
        BuildError: there is no such minor, or its pins don't name a version.
    """
    if minor not in MINORS:
        raise BuildError(f"there is no control plane of Kubernetes {minor}: it is built for {' and '.join(MINORS)}")
    pins = MODULE / f"kubernetes-{minor}.mod"
    version = re.search(r"^\tk8s\.io/kubernetes v(\S+)$", pins.read_text(), re.MULTILINE)
    if version is None:
        raise BuildError(f"{pins} doesn't require k8s.io/kubernetes")
    return version[1]


def main(minors: list[str]) -> None:
    """Build these minors' binaries, by default all, and print their paths."""
    for minor in minors or MINORS:
        print(built(minor))  # noqa: T201 - a command


if __name__ == "__main__":
    main(sys.argv[1:])
