"""`forebay providers check`: whether the providers of every GPUNodeClass can be used, as the operator found out."""

import argparse
import asyncio
import os
from typing import TYPE_CHECKING

from forebay.cli.output import add_output_option, print_document, print_line, print_table
from forebay.cli.parser import Command, UserError
from forebay.settings import Settings

if TYPE_CHECKING:
    from forebay.reporting.provider_checks import ProviderCheck

SOME_FAILED = 1


async def read_checks(settings: Settings) -> "list[ProviderCheck]":
    from forebay.kube.connection import connected_client
    from forebay.kube.errors import NotFound
    from forebay.kube.own_kinds import GPU_NODE_CLASSES
    from forebay.reporting.provider_checks import provider_checks
    from forebay.wiring.cluster import cluster_config
    from forebay.wiring.logs import configure_logging

    redactor = configure_logging(settings)
    config = cluster_config(settings, os.environ)
    client = connected_client(config, redactor)
    try:
        return provider_checks((await client.list_all(GPU_NODE_CLASSES)).items)
    except NotFound as error:
        raise UserError(
            f"{config.server} does not serve GPUNodeClass; run: forebay manifests crds | kubectl apply -f -"
        ) from error
    finally:
        await client.close()


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    import msgspec

    from forebay.reporting.offers import NO_PROVIDERS

    checks = asyncio.run(read_checks(settings))
    if arguments.output != "text":
        print_document(
            {"providers": [{**msgspec.to_builtins(each), "passed": each.passed} for each in checks]}, arguments.output
        )
    elif checks:
        print_table(
            ("CLASS", "PROVIDER", "READY", "REASON", "MESSAGE"),
            [(each.node_class, each.provider, str(each.ready), each.reason or "-", each.message) for each in checks],
        )
    else:
        print_line(NO_PROVIDERS)
    return 0 if all(each.passed for each in checks) else SOME_FAILED


COMMAND = Command(
    name="providers",
    summary="the providers of GPUNodeClasses",
    commands=(
        Command(
            name="check",
            summary="whether the providers of GPUNodeClasses can be used",
            description="Show whether the providers of every GPUNodeClass can be used: credentials, permissions and\n"
            "reachability, as the operator last checked them. It checks at its start, when a class has changed,\n"
            "every ten minutes, and every minute while a check fails. The same is in the class's conditions\n"
            "(ProviderValidation, and one such as WebhookReady for each provider).\n\n"
            "Exit codes: 0 every enabled provider passed; 1 one has not; 2 no cluster.",
            options=add_output_option,
            run=run,
            watchable=True,
        ),
    ),
)
