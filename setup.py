"""What the wheel has besides its packages: the lock, by which an installation bundles functions as a checkout does."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithLock(build_py):
    """The build of the packages, and requirements.lock in infra/ (infra/installation.py)."""

    def run(self) -> None:
        """Build them; an editable installation reads the checkout's lock."""
        super().run()
        if not self.editable_mode:
            folder = Path(self.build_lib) / "infra"
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile("requirements.lock", folder / "requirements.lock")


setup(cmdclass={"build_py": BuildWithLock})
