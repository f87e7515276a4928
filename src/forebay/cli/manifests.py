"""`forebay manifests`: prints the manifests to `kubectl apply`."""

import argparse
import sys
from typing import Any

from forebay.cli.parser import Command, UserError
from forebay.settings import Settings


def print_crds(_arguments: argparse.Namespace, _settings: Settings) -> int:
    from forebay.api.crd import crds_yaml

    sys.stdout.write(crds_yaml())
    return 0


def add_namespace_option(parser: argparse.ArgumentParser) -> None:
    from forebay.api.names import OPERATOR_NAMESPACE

    parser.add_argument(
        "--namespace", default=OPERATOR_NAMESPACE, help=f"namespace of the operator (default: {OPERATOR_NAMESPACE})"
    )


def namespace_of(arguments: argparse.Namespace) -> str:
    import msgspec

    from forebay.api.values import NamespaceName

    try:
        return msgspec.convert(arguments.namespace, NamespaceName)
    except msgspec.ValidationError:
        raise UserError(
            f"--namespace is {arguments.namespace!r}; a namespace has at most 63 lower-case letters, digits and dashes"
        ) from None


def print_rbac(arguments: argparse.Namespace, _settings: Settings) -> int:
    from forebay.install.permissions import rbac_manifests

    print_documents(rbac_manifests(namespace_of(arguments)))
    return 0


def add_install_options(parser: argparse.ArgumentParser) -> None:
    from forebay.install.manifests import IMAGE

    add_namespace_option(parser)
    parser.add_argument(
        "--no-policies",
        action="store_true",
        help="omit the admission policies of budgets, for a cluster that does not serve "
        "MutatingAdmissionPolicies in admissionregistration.k8s.io/v1",
    )
    parser.add_argument(
        "--image", default=IMAGE, help=f"image of the operator, as pushed to your registry (default: {IMAGE})"
    )


def print_install(arguments: argparse.Namespace, _settings: Settings) -> int:
    from forebay.api.crd import crds_yaml
    from forebay.install.manifests import install_manifests

    if not arguments.image or any(letter.isspace() for letter in arguments.image):
        raise UserError(f"--image is {arguments.image!r}; give a name such as registry.example.com/forebay:1.2.3")
    manifests = install_manifests(namespace_of(arguments), arguments.image, policies=not arguments.no_policies)
    sys.stdout.write(crds_yaml())
    print_documents(manifests)
    return 0


def print_documents(documents: list[dict[str, Any]]) -> None:
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 (YAML anchors make manifests hard to read)
            return True

    yaml.dump_all(documents, sys.stdout, Dumper=Dumper, sort_keys=False, explicit_start=True)


COMMAND = Command(
    name="manifests",
    summary="print the manifests that install Forebay",
    description="Print manifests for kubectl apply: everything, or only the CRDs or RBAC.",
    commands=(
        Command(
            name="install",
            summary="print everything: CRDs, RBAC, operator, admission policies",
            description="Print every manifest that Forebay needs, the same as the Helm chart with default values:\n\n"
            "  forebay manifests install --image registry.example.com/forebay:1.2.3 | kubectl apply --server-side -f -",
            options=add_install_options,
            run=print_install,
            uses_settings=False,
        ),
        Command(
            name="crds",
            summary="print the CustomResourceDefinitions of forebay.dev",
            description="Print Forebay's CustomResourceDefinitions:\n\n  forebay manifests crds | kubectl apply -f -",
            run=print_crds,
            uses_settings=False,
        ),
        Command(
            name="rbac",
            summary="print the operator's namespace, ServiceAccount and RBAC",
            description="Print the operator's namespace, its ServiceAccount and its least-privilege RBAC:\n\n"
            "  forebay manifests rbac | kubectl apply -f -",
            options=add_namespace_option,
            run=print_rbac,
            uses_settings=False,
        ),
    ),
)
