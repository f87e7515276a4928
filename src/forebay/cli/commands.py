"""Every command, in the order `--help` shows them."""

from typing import Final

from forebay.cli import demo, embedded, manifests, status
from forebay.cli.parser import Command

COMMANDS: Final[tuple[Command, ...]] = (demo.COMMAND, status.COMMAND, manifests.COMMAND, embedded.COMMAND)
