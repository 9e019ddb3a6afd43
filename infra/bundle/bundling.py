"""The code of each function: its own folder, ``shared``, and pinned third-party packages for arm64.

No container is needed: only wheels are installed, for Lambda's platform instead of this machine's. A bundle's folder is
named by the hash of its contents, so it is built once, and the same input gives the same bytes. "source" leaves the
code out: a text file stands for it, and the template only differs in the assets' hashes.

A bundle has bytecode if Lambda's Python version is installed (bytecode.py).
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

from infra import function_sizes, installation
from infra.bundle import bytecode, function_imports, requirements_lock, service_models

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from infra.bundle.requirements_lock import Pin
    from infra.options.stack_options import Bundle, StackOptions

LIMIT_MIB = 60
"""Unpacked. Lambda's limit is 250, but a cold start loads the whole bundle."""

RUNTIME = frozenset({"boto3", "botocore", "s3transfer"})
"""Packages of Lambda's runtime, which AWS patches: 25 MiB less for each function. What they may lack of EC2's API is in
the bundle (service_models.py). The bundle's urllib3, six and python-dateutil take precedence; they are the lock's
versions, which boto3 accepts."""

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
"""Packages that only unused parts of the Kubernetes client import."""

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
    "numpy._core._multiarray_tests",
    "numpy._core._simd",
    "numpy.f2py",
    "numpy.random",
)
"""Submodules of these are left out: 74 MiB of generated classes, numpy's modules for its own tests, and others that are
never imported. Functions only use the client's transport; a test imports every function without them."""

EMPTIED = ("kubernetes/__init__.py", "kubernetes/utils/__init__.py")
"""Files that are emptied in bundles: they import the whole client, which is half of a function's modules."""

_EXCLUDED_FOLDERS = frozenset({"__pycache__", "tests", "bin", "include"})
_EXCLUDED_SUFFIXES = frozenset({".pyc", ".pyi", ".pxd", ".h", ".a"})
_EXCLUDED_FILES = frozenset({".lock"})  # of uv, in its target folder
_EXCLUDED_METADATA = frozenset({"RECORD", "INSTALLER", "REQUESTED", "WHEEL", "direct_url.json", "uv_cache.json"})
_PIP_PLATFORMS = ("manylinux_2_28", "manylinux2014")  # pip's newer platform tags don't include the older ones
ARM = "aarch64"
MACHINES = {"arm64": ARM, "amd64": "x86_64"}
"""Python's names of the functions' architectures."""
_FORMAT = "2"  # the version of the bundle format; a change rebuilds all bundles
_EMPTY = b"# Left empty: see infra/bundle/bundling.py.\n"
_MIB = 1024 * 1024


class BundleError(RuntimeError):
    """A function can't be bundled; the message says what is missing and what to do."""


def bundles(
    checkout: Path, functions: Collection[str] = function_sizes.OF_ANY_MODE, *, mode: Bundle, machine: str = ARM
) -> dict[str, Path]:
    """The folder of each function's code in the build folder. Benchmarks use other values of ``machine``.

    Raises:
        BundleError: a handler doesn't exist, a package is not locked or can't be installed, or a bundle is too large.
    """
    root = installation.build_folder(checkout) / "bundles"
    if mode == "source":
        return {function: _placeholder(root, function) for function in functions}
    pins = requirements_lock.parse(installation.lock(checkout).read_text())
    distributions = importlib.metadata.packages_distributions()
    folders = {}
    for function in functions:
        if not (checkout / "functions" / function / "handler.py").is_file():
            raise BundleError(f"functions/{function}/handler.py does not exist: there is nothing to deploy")
        chosen = packages_of(function, pins, checkout, distributions)
        packages = _install(root / "packages", requirements_lock.requirements(chosen), machine)
        sdk = _install(root / "packages", requirements_lock.requirements([pins["botocore"]]), machine)
        modules = function_imports.first_party_modules(checkout, function).values()
        models = service_models.files(sdk, modules)
        folders[function] = _bundle(root / function, checkout, function, packages, models)
    return folders


def packages_of(
    function: str, pins: dict[str, Pin], checkout: Path, distributions: Mapping[str, list[str]]
) -> tuple[Pin, ...]:
    """The locked packages of a function's bundle. ``distributions`` names those that have a module, by the module.

    Raises:
        BundleError: the function imports what doesn't exist or is not locked.
    """
    try:
        roots = _roots(checkout, function, distributions)
        return requirements_lock.closure(pins, roots, without=RUNTIME | UNUSED)
    except (function_imports.MissingModuleError, requirements_lock.LockError) as error:
        raise BundleError(f"functions/{function}: {error}") from error


def code(options: StackOptions, functions: Collection[str] = ()) -> dict[str, str]:
    """The folder of each function's code, by the options of a stack; all of its functions, or these.

    Raises:
        BundleError: as ``bundles``.
    """
    machine = MACHINES[options.function_architecture]
    folders = bundles(installation.ROOT, functions or options.functions, mode=options.bundle, machine=machine)
    return {name: str(path) for name, path in folders.items()}


def runtime(checkout: Path, *, machine: str) -> Path:
    """A folder with the packages of Lambda's runtime, for benchmarks.

    Raises:
        BundleError: a package is not locked or can't be installed.
    """
    root = installation.build_folder(checkout) / "bundles"
    chosen = requirements_lock.closure(requirements_lock.parse(installation.lock(checkout).read_text()), ["boto3"])
    packages = _install(root / "packages", requirements_lock.requirements(chosen), machine)
    compiler = bytecode.compiler()
    cached = root / "runtime" / f"{packages.name}-{compiler.version or 'source'}"
    if not cached.is_dir():
        with _atomic_folder(cached) as folder:
            shutil.copytree(packages, folder, dirs_exist_ok=True)
            compiler.compile(folder)
    return cached


def report(assembly: Path) -> str:
    """A table of the assembly's functions with their size unpacked and number of files."""
    rows = [f"{'function':<14}{'MiB':>8}{'files':>8}"]
    for template in sorted(assembly.glob("*.template.json")):
        for resource in json.loads(template.read_text())["Resources"].values():
            if resource["Type"] != "AWS::Lambda::Function":
                continue
            handler = resource["Properties"]["Handler"]
            name = handler.removesuffix(".handler.handle").removesuffix(".handle").split(".")[-1]
            asset = assembly / f"asset.{resource['Properties']['Code']['S3Key'].removesuffix('.zip')}"
            file_sizes = [path.stat().st_size for path in _files(asset)]
            rows.append(f"{name:<14}{sum(file_sizes) / _MIB:>8.1f}{len(file_sizes):>8}")
    return "\n".join(rows)


def is_left_out(path: Path) -> bool:
    """Whether a file of the installed packages, by its path within them, is left out of bundles."""
    folders = path.parts[:-1]
    if _EXCLUDED_FOLDERS.intersection(folders) or path.suffix in _EXCLUDED_SUFFIXES or path.name in _EXCLUDED_FILES:
        return True
    if folders and folders[0].endswith(".dist-info") and path.name in _EXCLUDED_METADATA:
        return True
    module = ".".join(path.with_suffix("").parts)
    return path.name != "__init__.py" and module.startswith(tuple(f"{name}." for name in PRUNED))


def _placeholder(root: Path, function: str) -> Path:
    folder = root / "source" / function
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README").write_text(f"functions/{function} runs from the checkout; this file stands for its bundle.\n")
    return folder


def _roots(checkout: Path, function: str, distributions: Mapping[str, list[str]]) -> list[str]:
    roots = []
    for package in sorted(function_imports.third_party(checkout, function)):
        if package not in distributions:
            raise BundleError(f"functions/{function} imports {package}, which no installed distribution provides")
        roots += [name for name in distributions[package] if name.lower() not in RUNTIME]
    return roots


def _install(root: Path, requirements: str, machine: str) -> Path:
    cached = root / hashlib.sha256(f"{_FORMAT}\n{machine}\n{requirements}".encode()).hexdigest()[:16]
    if cached.is_dir():
        return cached
    with _atomic_folder(cached) as folder:
        requirements_file = folder.with_name("requirements.txt")
        requirements_file.write_text(requirements)
        command = [
            *_installer(machine),
            "--target",
            str(folder),
            "--no-deps",
            "--require-hashes",
            "--requirement",
            str(requirements_file),
        ]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        if process.returncode:
            if "No module named pip" in process.stderr:
                raise BundleError(
                    f"the functions' packages need an installer: put uv on PATH, or pip into {sys.prefix}"
                )
            raise BundleError(f"the functions' packages could not be installed:\n{process.stderr.strip()}")
    return cached


def _installer(machine: str) -> list[str]:
    next_to_python = Path(sys.executable).with_name("uv")
    uv = str(next_to_python) if next_to_python.is_file() else shutil.which("uv")
    wheels = ["--only-binary", ":all:", "--python-version", bytecode.VERSION]
    if uv:
        return [uv, "pip", "install", "--quiet", *wheels, "--python-platform", f"{machine}-manylinux_2_28"]
    platforms = [word for platform in _PIP_PLATFORMS for word in ("--platform", f"{platform}_{machine}")]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"]
    # pip would check requires-python against its own version; the lock was resolved for Lambda's.
    return [*pip, *wheels, "--ignore-requires-python", "--implementation", "cp", *platforms]


def _bundle(root: Path, checkout: Path, function: str, packages: Path, models: Mapping[str, bytes]) -> Path:
    sources = [
        (path, path.relative_to(checkout))
        for path in (
            checkout / "functions" / "__init__.py",
            *_files(checkout / "functions" / function),
            *_files(checkout / "shared"),
            *(sorted((checkout / "relay").glob("*.py")) if function == function_sizes.RELAY else ()),
        )
        if not _EXCLUDED_FOLDERS.intersection(path.parts[len(checkout.parts) :])
        and path.suffix not in _EXCLUDED_SUFFIXES
    ]
    sources += [
        (path, relative) for path in _files(packages) if not is_left_out(relative := path.relative_to(packages))
    ]
    digest = hashlib.sha256(_FORMAT.encode())
    compiler = bytecode.compiler()
    digest.update(compiler.version.encode())
    for path, relative in sources:
        digest.update(f"\0{relative.as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    for name, content in models.items():
        digest.update(f"\0{name}\0".encode())
        digest.update(hashlib.sha256(content).digest())
    cached = root / digest.hexdigest()[:16]
    if not cached.is_dir():
        with _atomic_folder(cached) as folder:
            _fill(folder, sources, models)
            compiler.compile(folder)
            for path in _files(folder):
                path.chmod(0o644)  # independent of the umask: Lambda reads it as another user
            size = sum(path.stat().st_size for path in _files(folder)) / _MIB
            if size > LIMIT_MIB:
                raise BundleError(f"functions/{function} is {size:.0f} MiB, and the limit is {LIMIT_MIB} MiB")
    installation.keep_recent(cached)
    return cached


def _fill(folder: Path, sources: Iterable[tuple[Path, Path]], models: Mapping[str, bytes]) -> None:
    """Copy the files to their places in the folder, and write the models there."""
    for path, relative in sources:
        target = folder / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        if relative.as_posix() in EMPTIED:
            target.write_bytes(_EMPTY)
        else:
            shutil.copyfile(path, target)
    for name, content in models.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


@contextlib.contextmanager
def _atomic_folder(target: Path) -> Iterator[Path]:
    """A temporary folder that is renamed to ``target`` at the end."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".tmp-") as temporary:
        folder = Path(temporary) / "content"
        folder.mkdir()
        yield folder
        with contextlib.suppress(OSError):  # another process was faster; its folder is the same
            folder.rename(target)


def _files(folder: Path) -> Collection[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())
