"""Whether the API server holds new pods of used-up budgets, which needs the admission policies of budgets."""

from typing import Final

from forebay.api.names import GATE_POLICY
from forebay.kube.client import Client
from forebay.kube.errors import Forbidden, NotFound
from forebay.kube.resources import AnyObject, Resource

GROUP: Final = "admissionregistration.k8s.io"
#: Versions of the API in which the policies of budgets work unchanged: the preferred one first. A cluster before 1.36
#: serves v1beta1 if its administrator has enabled it, and otherwise none.
VERSIONS: Final = ("v1", "v1beta1")
#: Version of Kubernetes from which on the preferred one is served unless somebody has disabled it.
SERVED_SINCE: Final = (1, 36)
KIND: Final = "MutatingAdmissionPolicy"

_BINDINGS: Final = "mutatingadmissionpolicybindings"
#: Kinds of which the gate needs an object, by plural: a binding without its policy holds nothing.
_PARTS: Final = {_BINDINGS: f"{KIND}Binding", "mutatingadmissionpolicies": KIND}
_NOT_HELD: Final = "Nothing holds new pods of a used-up GPUWorkloadBudget"
_NOT_SERVED: Final = (
    f"{_NOT_HELD}, because this cluster serves no MutatingAdmissionPolicies: use Kubernetes 1.36 or later, or enable "
    f"{GROUP}/v1beta1 and the feature gate MutatingAdmissionPolicy, then install the policies."
)
_NOT_INSTALLED: Final = (
    f"{_NOT_HELD}, because the admission policies of budgets are not installed, or not completely: run helm upgrade, "
    "or forebay manifests install --budget-policies {version} | kubectl apply --server-side -f -."
)


async def gate_missing(client: Client) -> str | None:
    """Why new pods of used-up budgets are not held, with what to do; None if they are, or if we may not know."""
    for version in VERSIONS:
        try:
            for plural, kind in _PARTS.items():
                await client.get(_part(version, plural, kind), GATE_POLICY)
        except NotFound:
            continue
        except Forbidden:
            return None
        return None
    for version in VERSIONS:
        if _BINDINGS in await client.served(f"{GROUP}/{version}"):
            return _NOT_INSTALLED.format(version=version)
    return _NOT_SERVED


def _part(version: str, plural: str, kind: str) -> Resource[AnyObject]:
    return Resource(group=GROUP, version=version, plural=plural, kind=kind, namespaced=False, type=AnyObject)
