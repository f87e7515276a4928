"""`forebay manifests`: what to `kubectl apply`."""

import argparse
import sys

from forebay.cli.parser import Command
from forebay.settings import Settings


def print_crds(_arguments: argparse.Namespace, _settings: Settings) -> int:
    from forebay.api.crd import crds_yaml

    sys.stdout.write(crds_yaml())
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
    ),
)
