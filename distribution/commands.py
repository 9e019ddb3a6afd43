"""The command of setuptools that collects a wheel's files.

Besides the packages, a wheel has the lock by which an installation bundles functions as a checkout does, and by
assets.py what the repository doesn't have. All of it goes into
setuptools' own build folder, never into the checkout's packages.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from setuptools.command.build_py import build_py

_ROOT = Path(__file__).resolve().parent.parent


class BuildPy(build_py):  # type: ignore[misc]  # setuptools has no types
    """Collects the modules, and then the assets; modules of earlier builds are removed."""

    def run(self) -> None:
        """Run the command."""
        if self.editable_mode:
            super().run()
            return
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()
        shutil.copyfile(_ROOT / "requirements.lock", Path(self.build_lib) / "infra" / "requirements.lock")
        # a process of its own: the build's has imported setuptools' parts of packages that the CDK imports too
        command = [sys.executable, "-m", "distribution.assets", str(Path(self.build_lib).resolve())]
        subprocess.run(command, cwd=_ROOT, check=True)  # noqa: S603 (our own arguments)
