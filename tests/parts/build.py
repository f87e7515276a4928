"""`make parts`: make sure that the programs are there, building or fetching what is not.

    python -m tests.parts.build [--small]

Small, for CI: without Headscale and Tailscale, whose builds take most of the time.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.rig.binaries import PARTS, cache_root
from tests.rig.build import BuildFailed, provide, say

#: Programs that a small build leaves out, and their tests with them.
LARGE = ("tailscaled", "tailscale", "headscale")
_REQUIREMENTS = Path(__file__).parent / "cloud-init.txt"


def debian() -> Path:
    """Where Debian's packages are unpacked; nothing of them is installed."""
    return cache_root() / "debian"


def shellcheck() -> Path | None:
    unpacked, installed = debian() / "usr/bin/shellcheck", shutil.which("shellcheck")
    return unpacked if unpacked.exists() else Path(installed) if installed else None


def cloud_init() -> Path | None:
    """The interpreter that has what cloud-init imports."""
    python = cache_root() / "cloud-init/bin/python"
    return python if python.exists() and (debian() / "usr/bin/cloud-init").exists() else None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.parts.build", description=__doc__)
    parser.add_argument("--small", action="store_true", help=f"without {', '.join(LARGE)}")
    small = parser.parse_args().small
    wanted = [each for each in PARTS if not (small and each in LARGE)]
    if small:
        say(f"NOT BUILT, NOT TESTED in this small set: {', '.join(LARGE)}. The whole set: make parts")
    try:
        provide(wanted)
        _fetch_debian()
    except (BuildFailed, OSError, subprocess.CalledProcessError) as error:
        say(f"{error}")
        say("some programs are missing, so their tests will not run. To try again: make parts")
        return 1
    return 0


def _fetch_debian() -> None:
    if shellcheck() is not None and cloud_init() is not None:
        say(f"shellcheck, cloud-init: found in {debian()}")
        return
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise BuildFailed("shellcheck and cloud-init come from Debian's packages, and this is no Debian")
    say("fetching shellcheck and cloud-init (Debian's packages, about 20 s) ...")
    debian().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        download = ["apt-get", "download", "--quiet", "shellcheck", "cloud-init"]
        if subprocess.run(download, cwd=scratch, capture_output=True, check=False).returncode:
            subprocess.run(["apt-get", "update", "--quiet"], capture_output=True, check=True)
            subprocess.run(download, cwd=scratch, capture_output=True, check=True)
        for package in Path(scratch).glob("*.deb"):
            subprocess.run(["dpkg", "-x", str(package), str(debian())], check=True)
    home = cache_root() / "cloud-init"
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    install = [str(home / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, "--require-hashes", "-r", str(_REQUIREMENTS)], check=True)


if __name__ == "__main__":
    sys.exit(main())
