"""`forebay manifests`: what to `kubectl apply`."""

import argparse
import sys

from forebay.cli.parser import Command
from forebay.settings import Settings


def print_crds(_arguments: argparse.Namespace, _settings: Settings) -> int:
    from forebay.api.crd import crds_yaml

    sys.stdout.write(crds_yaml())
    return 0


def add_namespace_option(parser: argparse.ArgumentParser) -> None:
    from forebay.engine.permissions import NAMESPACE

    parser.add_argument("--namespace", default=NAMESPACE, help=f"where the operator lives (default: {NAMESPACE})")


def print_rbac(arguments: argparse.Namespace, _settings: Settings) -> int:
    import yaml

    from forebay.engine.permissions import rbac_manifests

    yaml.safe_dump_all(rbac_manifests(arguments.namespace), sys.stdout, sort_keys=False, explicit_start=True)
    return 0


COMMAND = Command(
    name="manifests",
    summary="print the manifests to install",
    commands=(
        Command(
            name="crds",
            summary="the CustomResourceDefinitions of forebay.dev",
            description="Print Forebay's CustomResourceDefinitions:\n\n  forebay manifests crds | kubectl apply -f -",
            run=print_crds,
            uses_settings=False,
        ),
        Command(
            name="rbac",
            summary="the operator's namespace, account and least roles",
            description="Print the operator's namespace, its ServiceAccount and the least roles it works with:\n\n"
            "  forebay manifests rbac | kubectl apply -f -",
            options=add_namespace_option,
            run=print_rbac,
            uses_settings=False,
        ),
    ),
)
