"""Every command, in the order `--help` shows them."""

from typing import Final

from forebay.cli import budgets, demo, embedded, explain, manifests, offers, plan, run, status, uninstall
from forebay.cli.parser import Command

COMMANDS: Final[tuple[Command, ...]] = (
    run.COMMAND,
    demo.COMMAND,
    status.COMMAND,
    explain.COMMAND,
    plan.COMMAND,
    offers.COMMAND,
    budgets.COMMAND,
    manifests.COMMAND,
    uninstall.COMMAND,
    embedded.COMMAND,
)
