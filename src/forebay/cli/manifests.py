"""`forebay manifests`: prints the manifests to `kubectl apply`."""

import argparse
import sys
from typing import Any

from forebay.cli.parser import Command, UserError
from forebay.settings import Settings


def print_crds(_arguments: argparse.Namespace, _settings: Settings) -> int:
    from forebay.install.crds import crds_yaml

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


def add_rbac_options(parser: argparse.ArgumentParser) -> None:
    add_namespace_option(parser)
    parser.add_argument(
        "--secret",
        action="append",
        default=[],
        metavar="NAME",
        help="a Secret of that namespace that the operator may read; may be repeated (default: none)",
    )
    parser.add_argument(
        "--budgets",
        choices=("on", "off"),
        default="on",
        help="off: for an operator that runs with --budgets off, without the permissions that only GPUWorkloadBudgets "
        "need (default: on)",
    )
    parser.add_argument(
        "--offload",
        choices=("on", "off"),
        default="off",
        help="on: with the permissions that the operator needs to run marked Jobs remotely, such as at RunPod "
        "(default: off)",
    )


def secrets_of(arguments: argparse.Namespace) -> list[str]:
    import msgspec

    from forebay.api.values import ObjectName

    try:
        return msgspec.convert(arguments.secret, list[ObjectName])
    except msgspec.ValidationError:
        given = ", ".join(map(repr, arguments.secret))
        raise UserError(f"--secret is {given}; give the name of a Secret, and repeat the option for more") from None


def print_rbac(arguments: argparse.Namespace, _settings: Settings) -> int:
    from forebay.install.joining import join_manifests
    from forebay.install.roles import rbac_manifests

    namespace = namespace_of(arguments)
    roles = rbac_manifests(
        namespace,
        secrets_of(arguments),
        budgets=arguments.budgets == "on",
        offload=arguments.offload == "on",
        read_only=arguments.read_only,
    )
    # Nothing joins in a dry run.
    print_documents(roles if arguments.read_only else [*roles, *join_manifests(namespace)])
    return 0


def _add_printed_rbac_options(parser: argparse.ArgumentParser) -> None:
    add_rbac_options(parser)
    parser.add_argument(
        "--read-only",
        action="store_true",
        help="only permissions to get, list and watch, which is all that `forebay run --dry-run` needs",
    )


def add_install_options(parser: argparse.ArgumentParser) -> None:
    from forebay.install.manifests import IMAGE
    from forebay.kube.admission import VERSIONS

    add_rbac_options(parser)
    parser.add_argument(
        "--kube-version",
        metavar="VERSION",
        help="version of the cluster, such as 1.36: from 1.36 on, the admission policies of budgets are printed too",
    )
    parser.add_argument(
        "--budget-policies",
        choices=(*VERSIONS, "none"),
        help="version of MutatingAdmissionPolicies that the cluster serves: print the admission policies of budgets in "
        "that version (default: by --kube-version, else none)",
    )
    parser.add_argument(
        "--image", default=IMAGE, help=f"image of the operator, as pushed to your registry (default: {IMAGE})"
    )


def print_install(arguments: argparse.Namespace, _settings: Settings) -> int:
    from forebay.install.crds import crds_yaml
    from forebay.install.manifests import install_manifests

    if not arguments.image or any(letter.isspace() for letter in arguments.image):
        raise UserError(f"--image is {arguments.image!r}; give a name such as registry.example.com/forebay:1.2.3")
    budgets = arguments.budgets == "on"
    policies = _budget_policies(arguments)
    manifests = install_manifests(
        namespace_of(arguments),
        arguments.image,
        secrets=secrets_of(arguments),
        budget_policies=policies,
        budgets=budgets,
        offload=arguments.offload == "on",
    )
    sys.stdout.write(crds_yaml())
    print_documents(manifests)
    if budgets and policies is None and arguments.budget_policies is None:
        sys.stderr.write(f"forebay: {_LEFT_OUT}\n")
    return 0


_LEFT_OUT = (
    "the admission policies of budgets are left out, so nothing holds new pods of a used-up GPUWorkloadBudget. "
    "For Kubernetes 1.36 and later, add --kube-version 1.36; for an earlier one that serves "
    "admissionregistration.k8s.io/v1beta1, --budget-policies v1beta1; --budget-policies none silences this."
)


def _budget_policies(arguments: argparse.Namespace) -> str | None:
    """Version of the admission policies of budgets to print: one that the cluster surely serves, or None."""
    from forebay.kube.admission import SERVED_SINCE, VERSIONS
    from forebay.kube.versions import OLDEST_SUPPORTED, minor_version

    found = None
    if arguments.kube_version is not None:
        found = minor_version(arguments.kube_version)
        if found is None:
            raise UserError(f"--kube-version is {arguments.kube_version!r}; give a version such as 1.36 or v1.36.4")
        if found < OLDEST_SUPPORTED:
            oldest = ".".join(map(str, OLDEST_SUPPORTED))
            raise UserError(f"--kube-version is {arguments.kube_version}; Forebay needs Kubernetes {oldest} or later")
    if arguments.budget_policies is not None:
        chosen: str = arguments.budget_policies
        return None if chosen == "none" else chosen
    return VERSIONS[0] if found is not None and found >= SERVED_SINCE else None


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
            "  forebay manifests install --image registry.example.com/forebay:1.2.3 --kube-version 1.36 |\n"
            "    kubectl apply --server-side -f -",
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
            options=_add_printed_rbac_options,
            run=print_rbac,
            uses_settings=False,
        ),
    ),
)
