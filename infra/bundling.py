"""What is uploaded as each function's code: its own folder, ``shared``, and pinned third-party packages for arm64.

No container is needed: only wheels are installed, for Lambda's platform instead of this machine's. A bundle's folder is
named by the hash of all that goes into it, so it is made once, and the same input gives the same bytes. "source"
leaves all code out: a text stands for it, and the template is the same but for the assets' hashes.

A bundle carries bytecode where Lambda's version of Python is at hand to make it (bytecode.py).
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from infra import bytecode, function_imports, function_sizes, requirements_lock

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from infra.stack_options import Bundle

LIMIT_MIB = 60
"""Unpacked. Lambda would take 250, but whatever a function brings it also has to fetch when it starts cold."""

RUNTIME = frozenset({"boto3", "botocore", "s3transfer"})
"""Left to Lambda's runtime: 25 MiB less in each function, patched by AWS; we call nothing newer than it has. The
bundle's urllib3, six and python-dateutil come first on its path; they are the lock's, which boto3 accepts."""

UNUSED = frozenset(
    {
        # the asyncio half of the Kubernetes client
        "aiohappyeyeballs",
        "aiohttp",
        "aiohttp-retry",
        "aiosignal",
        "attrs",
        "frozenlist",
        "multidict",
        "propcache",
        "yarl",
        # its models, its reading of kubeconfigs, and its streams into pods
        "annotated-types",
        "certifi",
        "charset-normalizer",
        "durationpy",
        "idna",
        "oauthlib",
        "pydantic",
        "pydantic-core",
        "requests",
        "requests-oauthlib",
        "typing-inspection",
        "websocket-client",
    }
)
"""What only parts of the Kubernetes client import that we don't use."""

PRUNED = (
    "kubernetes.aio",
    "kubernetes.client.api",
    "kubernetes.client.models",
    "kubernetes.config",
    "kubernetes.dynamic",
    "kubernetes.informer",
    "kubernetes.leaderelection",
    "kubernetes.stream",
    "kubernetes.watch",
    "numpy.f2py",
    "numpy.random",
)
"""Modules below these are left out: 74 MiB of generated classes, and what else is never imported. We use the client's
transport only; a test imports every function without them."""

EMPTIED = ("kubernetes/__init__.py", "kubernetes/utils/__init__.py")
"""These import all of the client, which is half of a function's modules: in bundles they say nothing."""

_JUNK_FOLDERS = frozenset({"__pycache__", "tests", "bin", "include"})
_JUNK_SUFFIXES = frozenset({".pyc", ".pyi", ".pxd", ".h", ".a"})
_JUNK_FILES = frozenset({".lock"})  # uv's own, in the folder that it installs into
_JUNK_METADATA = frozenset({"RECORD", "INSTALLER", "REQUESTED", "WHEEL", "direct_url.json", "uv_cache.json"})
_PIP_PLATFORMS = ("manylinux_2_28", "manylinux2014")  # pip takes the newer not to include the older
ARM = "aarch64"
"""The machine that functions run on."""
_FORMAT = "2"  # of bundles; a change here makes all of them anew
_EMPTY = b"# Left empty: see infra/bundling.py.\n"
_MIB = 1024 * 1024


class BundleError(RuntimeError):
    """A function's code can't be put together; the text says what is missing and what to do."""


def bundles(checkout: Path, *, mode: Bundle, machine: str = ARM) -> dict[str, Path]:
    """The folder of each function's code, under ``build/bundles``. Another ``machine`` is for measuring on it.

    Raises:
        BundleError: a handler is not there, a package is not locked or can't be fetched, or a bundle is too large.
    """
    root = checkout / "build" / "bundles"
    if mode == "source":
        return {function: _placeholder(root, function) for function in function_sizes.FUNCTIONS}
    pins = requirements_lock.parse((checkout / "requirements.lock").read_text())
    distributions = importlib.metadata.packages_distributions()
    made = {}
    for function in function_sizes.FUNCTIONS:
        if not (checkout / "functions" / function / "handler.py").is_file():
            raise BundleError(f"functions/{function}/handler.py is not there: there is nothing to deploy")
        try:
            chosen = requirements_lock.closure(
                pins, _roots(checkout, function, distributions), without=RUNTIME | UNUSED
            )
        except (function_imports.MissingModuleError, requirements_lock.LockError) as error:
            raise BundleError(f"functions/{function}: {error}") from error
        packages = _install(root / "packages", requirements_lock.requirements(chosen), machine)
        made[function] = _bundle(root / function, checkout, function, packages)
    return made


def runtime(checkout: Path, *, machine: str) -> Path:
    """A folder with what Lambda's own runtime brings, for measuring outside it.

    Raises:
        BundleError: a package is not locked or can't be fetched.
    """
    root = checkout / "build" / "bundles"
    chosen = requirements_lock.closure(requirements_lock.parse((checkout / "requirements.lock").read_text()), ["boto3"])
    packages = _install(root / "packages", requirements_lock.requirements(chosen), machine)
    compiler = bytecode.compiler()
    kept = root / "runtime" / f"{packages.name}-{compiler.version or 'source'}"
    if not kept.is_dir():
        with _making(kept) as folder:
            shutil.copytree(packages, folder, dirs_exist_ok=True)
            compiler.compile(folder)
    return kept


def report(assembly: Path) -> str:
    """A table of the assembly's functions: MiB unpacked, and files."""
    rows = [f"{'function':<14}{'MiB':>8}{'files':>8}"]
    for template in sorted(assembly.glob("*.template.json")):
        for resource in json.loads(template.read_text())["Resources"].values():
            if resource["Type"] != "AWS::Lambda::Function":
                continue
            name = resource["Properties"]["Handler"].split(".")[1]
            asset = assembly / f"asset.{resource['Properties']['Code']['S3Key'].removesuffix('.zip')}"
            sizes_ = [path.stat().st_size for path in _files(asset)]
            rows.append(f"{name:<14}{sum(sizes_) / _MIB:>8.1f}{len(sizes_):>8}")
    return "\n".join(rows)


def junk(path: Path) -> bool:
    """Whether a file of the installed packages (its path within them) is left out of bundles."""
    folders = path.parts[:-1]
    if _JUNK_FOLDERS.intersection(folders) or path.suffix in _JUNK_SUFFIXES or path.name in _JUNK_FILES:
        return True
    if folders and folders[0].endswith(".dist-info") and path.name in _JUNK_METADATA:
        return True
    module = ".".join(path.with_suffix("").parts)
    return path.name != "__init__.py" and module.startswith(tuple(f"{name}." for name in PRUNED))


def _placeholder(root: Path, function: str) -> Path:
    folder = root / "source" / function
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README").write_text(f"functions/{function} is run from the checkout; this stands for its bundle.\n")
    return folder


def _roots(checkout: Path, function: str, distributions: Mapping[str, list[str]]) -> list[str]:
    roots = []
    for package in sorted(function_imports.third_party(checkout, function)):
        if package not in distributions:
            raise BundleError(f"functions/{function} imports {package}, which no installed distribution has")
        roots += [name for name in distributions[package] if name.lower() not in RUNTIME]
    return roots


def _install(root: Path, requirements: str, machine: str) -> Path:
    kept = root / hashlib.sha256(f"{_FORMAT}\n{machine}\n{requirements}".encode()).hexdigest()[:16]
    if kept.is_dir():
        return kept
    with _making(kept) as folder:
        listed = folder.with_name("requirements.txt")
        listed.write_text(requirements)
        command = [
            *_installer(machine),
            "--target",
            str(folder),
            "--no-deps",
            "--require-hashes",
            "--requirement",
            str(listed),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  our own words
        if done.returncode:
            raise BundleError(f"the functions' packages could not be installed:\n{done.stderr.strip()}")
    return kept


def _installer(machine: str) -> list[str]:
    beside = Path(sys.executable).with_name("uv")
    uv = str(beside) if beside.is_file() else shutil.which("uv")
    wheels = ["--only-binary", ":all:", "--python-version", bytecode.VERSION]
    if uv:
        return [uv, "pip", "install", "--quiet", *wheels, "--python-platform", f"{machine}-manylinux_2_28"]
    platforms = [word for platform in _PIP_PLATFORMS for word in ("--platform", f"{platform}_{machine}")]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"]
    # pip holds some packages' requires-python against its own Python; the lock was judged for Lambda's.
    return [*pip, *wheels, "--ignore-requires-python", "--implementation", "cp", *platforms]


def _bundle(root: Path, checkout: Path, function: str, packages: Path) -> Path:
    sources = [
        (path, path.relative_to(checkout))
        for path in (
            checkout / "functions" / "__init__.py",
            *_files(checkout / "functions" / function),
            *_files(checkout / "shared"),
        )
        if not _JUNK_FOLDERS.intersection(path.parts[len(checkout.parts) :]) and path.suffix not in _JUNK_SUFFIXES
    ]
    sources += [(path, relative) for path in _files(packages) if not junk(relative := path.relative_to(packages))]
    digest = hashlib.sha256(_FORMAT.encode())
    compiler = bytecode.compiler()
    digest.update(compiler.version.encode())
    for path, relative in sources:
        digest.update(f"\0{relative.as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    kept = root / digest.hexdigest()[:16]
    if not kept.is_dir():
        with _making(kept) as folder:
            for path, relative in sources:
                target = folder / relative
                target.parent.mkdir(parents=True, exist_ok=True)
                if relative.as_posix() in EMPTIED:
                    target.write_bytes(_EMPTY)
                else:
                    shutil.copyfile(path, target)
            compiler.compile(folder)
            for path in _files(folder):
                path.chmod(0o644)  # whatever the umask: Lambda reads it as another user
            size = sum(path.stat().st_size for path in _files(folder)) / _MIB
            if size > LIMIT_MIB:
                raise BundleError(f"functions/{function} would be {size:.0f} MiB, and {LIMIT_MIB} MiB is its limit")
    return kept


@contextlib.contextmanager
def _making(kept: Path) -> Iterator[Path]:
    """A folder to fill that becomes ``kept`` at the end, whole or not at all."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".making-") as making:
        folder = Path(making) / "content"
        folder.mkdir()
        yield folder
        with contextlib.suppress(OSError):  # another process was quicker: its folder is the same
            folder.rename(kept)


def _files(folder: Path) -> Collection[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())
