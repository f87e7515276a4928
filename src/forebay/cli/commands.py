"""Every command, in the order `--help` shows them."""

from typing import Final

from forebay.cli import (
    bench,
    completion,
    embedded,
    manifests,
    migrate,
    offers,
    providers,
    run,
    status,
    support_bundle,
    uninstall,
    version,
    workload,
)
from forebay.cli.budgets import command as budgets
from forebay.cli.demo import command as demo
from forebay.cli.explain import command as explain
from forebay.cli.parser import Command
from forebay.cli.plan import command as plan
from forebay.cli.simulate import command as simulate

COMMANDS: Final[tuple[Command, ...]] = (
    run.COMMAND,
    demo.COMMAND,
    status.COMMAND,
    explain.COMMAND,
    plan.COMMAND,
    simulate.COMMAND,
    offers.COMMAND,
    providers.COMMAND,
    budgets.COMMAND,
    support_bundle.COMMAND,
    manifests.COMMAND,
    migrate.COMMAND,
    uninstall.COMMAND,
    embedded.COMMAND,
    workload.COMMAND,
    bench.COMMAND,
    completion.COMMAND,
    version.COMMAND,
)
