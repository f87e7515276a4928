"""Shell scripts for the first boot: the parts that all of them share, and their form as cloud-init user data.

Some providers run the script at every boot, so it must do no harm when it is run again: every step first looks whether
it is done. Values are in quoted here-documents or quoted words: the shell expands none of them.
"""

import shlex
from typing import Final

import yaml

#: Where a machine keeps the script, what the script fetches, and its log.
HOME: Final = "/var/lib/forebay"
LOG: Final = "/var/log/forebay-join.log"
_END: Final = "FOREBAY_END"

_PROLOGUE: Final = f"""\
#!/bin/bash
# Written by Forebay for one machine: joins it to the cluster. Safe to run again, at every boot.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
if [ "$(id -u)" -ne 0 ]; then
  echo "forebay: this script must run as root" >&2
  exit 1
fi
install -d -m 700 {HOME}
exec > >(tee -a {LOG}) 2>&1
trap 'echo "forebay: join failed in line $LINENO: the lines above say why"' ERR

say() {{
  echo "forebay: $*"
}}

# Binaries are those of the machine's own architecture: GH200 and GB200 hosts are arm64.
case "$(uname -m)" in
  x86_64) arch=amd64 ;;
  aarch64 | arm64) arch=arm64 ;;
  *)
    say "no binaries for $(uname -m)"
    exit 1
    ;;
esac

# fetch URL FILE: again until it is whole, for networks that are not up yet.
fetch() {{
  curl --fail --silent --show-error --location --retry 10 --retry-all-errors --retry-delay 5 --output "$2.new" "$1"
  mv "$2.new" "$2"
}}

# verify FILE SHA256
verify() {{
  if ! echo "$2  $1" | sha256sum --check --status; then
    say "$1 is not what its publisher published"
    rm -f "$1"
    exit 1
  fi
}}

if command -v nvidia-smi > /dev/null; then
  nvidia-smi --list-gpus || say "nvidia-smi fails: the GPUs will not be allocatable"
else
  say "no NVIDIA driver in this image: GPUs are allocatable only once something in the cluster installs it"
fi
"""


def script(*steps: str) -> str:
    """The whole script of these steps."""
    return "\n".join((_PROLOGUE, *(each.strip("\n") + "\n" for each in steps), 'say "done"\n'))


def file_step(path: str, text: str, mode: str = "600") -> str:
    """Writes a file, which nobody else can read even for a moment. The text is taken as it is."""
    if f"\n{_END}\n" in f"\n{text}\n":
        raise ValueError(f"a line of {path} would end it")
    ended = text if text.endswith("\n") else text + "\n"
    quoted = shlex.quote(path)
    return f"install -D -m {mode} /dev/null {quoted}\ncat > {quoted} << '{_END}'\n{ended}{_END}\n"


def cloud_config(script_text: str) -> str:
    """The script as cloud-init user data, which runs it once per instance."""
    path = f"{HOME}/join.sh"
    document = {
        "write_files": [{"path": path, "owner": "root:root", "permissions": "0700", "content": script_text}],
        "runcmd": [[path]],
    }
    return "#cloud-config\n" + yaml.dump(document, Dumper=_Literal, sort_keys=False, width=10_000)


class _Literal(yaml.SafeDumper):
    """Writes long texts as they are, line by line."""


def _represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Literal.add_representer(str, _represent)
