"""A place on a shared control plane for one story: users with pools, and a home for operators with the least roles."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from forebay.api.names import OPERATOR_LEASE, PAUSED_LABEL
from forebay.install.admission_policies import admission_policies
from forebay.install.crds import custom_resource_definitions
from forebay.install.operator_policies import operator_policies
from forebay.install.roles import rbac_manifests
from forebay.model.signing_requests import KUBELET_CLIENT_SIGNER
from tests.cluster.operators import OperatorProcess, until
from tests.rig import Rig, RigFailed
from tests.rig.binaries import policies_version

FOREBAY = "/apis/forebay.dev/v1alpha1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
PATHS = {
    "nodes": "/api/v1/nodes",
    "pods": "/api/v1/pods",
    "namespaces": "/api/v1/namespaces",
    "gpunodeclasses": f"{FOREBAY}/gpunodeclasses",
    "gpunodepools": f"{FOREBAY}/gpunodepools",
    "gpuinstances": f"{FOREBAY}/gpuinstances",
    "gpuworkloadbudgets": f"{FOREBAY}/gpuworkloadbudgets",
    "nodeprovisioners": f"{FOREBAY}/nodeprovisioners",
    # As the operator watches them: others may be there too.
    "certificatesigningrequests": "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    f"?fieldSelector=spec.signerName={KUBELET_CLIENT_SIGNER}",
    "resourceslices": "/apis/resource.k8s.io/v1/resourceslices",
    "deviceclasses": "/apis/resource.k8s.io/v1/deviceclasses",
    "resourceclaims": "/apis/resource.k8s.io/v1/resourceclaims",
    "poddisruptionbudgets": "/apis/policy/v1/poddisruptionbudgets",
    "jobs": f"/apis/batch/v1/jobs?labelSelector={PAUSED_LABEL}",
}
#: The stories' pools are in namespaces of their own.
NOBODY_EXCLUDED: Mapping[str, Any] = {}
_PLURALS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "Role": f"{RBAC}/namespaces/{{}}/roles",
    "RoleBinding": f"{RBAC}/namespaces/{{}}/rolebindings",
    "ValidatingAdmissionPolicy": f"{ADMISSION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{ADMISSION}/validatingadmissionpolicybindings",
}


def install_definitions(rig: Rig) -> None:
    """Our kinds, served."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for definition in custom_resource_definitions():
        rig.call("POST", path, definition)
    for definition in custom_resource_definitions():
        plural = definition["spec"]["names"]["plural"]
        # Established comes a moment before served.
        for _ in range(1000):
            with contextlib.suppress(RigFailed):
                rig.call("GET", f"{FOREBAY}/{plural}")
                break


def create(rig: Rig, manifest: dict[str, Any]) -> None:
    """What another story has made already is as good."""
    path = _PLURALS[manifest["kind"]].format(manifest["metadata"].get("namespace", ""))
    try:
        rig.call("POST", path, manifest)
    except RigFailed as failure:
        if ": 409 " not in str(failure):
            raise


def install_operator_policies(rig: Rig, account: str) -> None:
    """The policies that bound this account."""
    for each in operator_policies(account):
        plural = (
            "validatingadmissionpolicybindings" if each["kind"].endswith("Binding") else "validatingadmissionpolicies"
        )
        rig.call("POST", f"/apis/admissionregistration.k8s.io/v1/{plural}", each)


def install_budget_policies(rig: Rig) -> None:
    """The policies by which the API server holds new pods of used-up budgets."""
    for each in admission_policies(policies_version()):
        plural = "mutatingadmissionpolicybindings" if each["kind"].endswith("Binding") else "mutatingadmissionpolicies"
        rig.call("POST", f"/apis/admissionregistration.k8s.io/{policies_version()}/{plural}", each)


class World:
    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        #: Unique, because a control plane serves many stories.
        self.name = f"world-{secrets.token_hex(3)}"
        self.home = f"{self.name}-home"
        self._made: list[str] = []

    async def call(self, method: str, path: str, body: object = None) -> Any:
        return await asyncio.to_thread(self.rig.call, method, path, body)

    async def change_spec(self, path: str, changes: Mapping[str, Any]) -> None:
        """Replaces fields of the spec, as often as the operator writes the object's status in between."""

        async def changed() -> bool:
            found = await self.call("GET", path)
            try:
                await self.call("PUT", path, {**found, "spec": {**found["spec"], **changes}})
            except RigFailed as failure:
                if ": 409 " not in str(failure):
                    raise
                return False
            return True

        await until(changed, f"{path} is changed")

    async def create_class(self, machine: Any = None, *, allowed: Mapping[str, Any] | None = NOBODY_EXCLUDED) -> None:
        """The one that all pools name. Without a machine, with one that nobody answers for."""
        machine = machine or {
            "name": "m1",
            "gpuCount": 1,
            "scaleUpEndpoint": "http://127.0.0.1:1/on",
            "scaleDownEndpoint": "http://127.0.0.1:1/off",
        }
        spec: dict[str, Any] = {"providers": [{"name": "webhook", "machines": [msgspec.to_builtins(machine)]}]}
        if allowed is not None:
            spec["allowedNamespaces"] = allowed
        await self._create(PATHS["gpunodeclasses"], "GPUNodeClass", self.name, spec)

    async def delete_class(self) -> None:
        await self._delete(f"{PATHS['gpunodeclasses']}/{self.name}")

    async def create_pool(self, name: str, namespace: str | None = None) -> str:
        """Its uid."""
        spec = {"nodeClassRef": {"name": self.name}, "disruption": {"consolidateAfter": "0s"}}
        return await self._create(self._pools(namespace), "GPUNodePool", name, spec)

    async def delete_pool(self, name: str) -> None:
        await self._delete(f"{self._pools()}/{name}")

    async def create_node(self, name: str) -> None:
        await self._create("/api/v1/nodes", "Node", f"{self.name}-{name}", {})

    async def delete_node(self, name: str) -> None:
        await self._delete(f"/api/v1/nodes/{self.name}-{name}")

    async def create_pod(self, name: str) -> None:
        spec = {"containers": [{"name": "main", "image": "i"}], "automountServiceAccountToken": False}
        await self._create(f"/api/v1/namespaces/{self.name}/pods", "Pod", name, spec)

    async def delete_pod(self, name: str) -> None:
        await self._delete(f"/api/v1/namespaces/{self.name}/pods/{name}")

    def _pools(self, namespace: str | None = None) -> str:
        return f"{FOREBAY}/namespaces/{namespace or self.name}/gpunodepools"

    async def _create(self, path: str, kind: str, name: str, spec: object) -> str:
        api = path.removeprefix("/apis/").removeprefix("/api/").split("/")
        version = "v1" if api[0] == "v1" else "/".join(api[:2])
        body = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
        made = await self.call("POST", path, body)
        self._made.append(f"{path}/{name}")
        return str(made["metadata"]["uid"])

    async def _delete(self, path: str) -> None:
        await self.call("DELETE", path, {"gracePeriodSeconds": 0})
        self._made.remove(path)

    async def told(self, name: str, uid: str, reason: str = "NodeClassFound", namespace: str | None = None) -> None:
        """Returns once the pool of this very uid says so."""

        async def says() -> bool:
            pool = await self.call("GET", f"{self._pools(namespace)}/{name}")
            assert pool["metadata"]["uid"] == uid
            conditions = pool.get("status", {}).get("conditions", ())
            return any(each["type"] == "NodeClassReady" and each["reason"] == reason for each in conditions)

        await until(says, f"pool {name} says {reason}")

    async def counts(self) -> dict[str, int]:
        """How many objects of each kind that the operator watches the server has."""
        return {plural: len((await self.call("GET", path))["items"]) for plural, path in PATHS.items()}

    async def leader(self) -> str:
        try:
            path = f"/apis/coordination.k8s.io/v1/namespaces/{self.home}/leases/{OPERATOR_LEASE}"
            return (await self.call("GET", path))["spec"].get("holderIdentity") or ""
        except RigFailed:
            return ""

    @contextlib.asynccontextmanager
    async def operator(
        self,
        name: str,
        port: int | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        lease: float | None = None,
        settings: Mapping[str, str] | None = None,
        roles: Sequence[dict[str, Any]] | None = None,
    ) -> AsyncIterator[OperatorProcess]:
        """A replica, through a proxy's `port` where one is given. Gone at the end, whatever became of it.

        `roles`: what it is granted. Default: what an operator without Secrets needs.
        """
        user = f"{self.name}-{name}"
        await asyncio.to_thread(self.grant, user, roles)
        kubeconfig = self.rig.kubeconfig_for(user)
        if port is not None:
            redirect(kubeconfig, self.rig.url, port)
        process = OperatorProcess(self.rig, user, kubeconfig, self.home, environment, lease=lease, settings=settings)
        process.start()
        try:
            yield process
        finally:
            process.stop()

    @contextlib.asynccontextmanager
    async def leading(self, name: str, port: int | None = None) -> AsyncIterator[OperatorProcess]:
        """A replica that leads and is ready."""
        async with self.operator(name, port) as process:
            await until(process.is_ready, f"{process.user} is ready")
            await self.led_by(process)
            yield process

    async def led_by(self, process: OperatorProcess) -> None:
        identity = await process.identity()

        async def leads() -> bool:
            return await self.leader() == identity

        await until(leads, f"{process.user} leads")

    def grant(self, user: str, roles: Sequence[dict[str, Any]] | None = None) -> None:
        """The generated roles (by default those of an operator), for this user instead of the service account.

        Cluster-wide ones have names of this world's: another story on the same control plane grants the operator more.
        """
        for manifest in roles or rbac_manifests(self.home):
            if manifest["kind"] == "ClusterRole":
                manifest["metadata"]["name"] = f"{self.name}:{manifest['metadata']['name']}"
            elif "subjects" in manifest:
                manifest["metadata"]["name"] = user
                manifest["subjects"] = [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}]
                if manifest["roleRef"]["kind"] == "ClusterRole":
                    manifest["roleRef"]["name"] = f"{self.name}:{manifest['roleRef']['name']}"
            create(self.rig, manifest)

    def will_leave(self, path: str) -> None:
        """What the story has made by itself goes at its end."""
        self._made.append(path)

    async def leave(self) -> None:
        for path in list(self._made):
            with contextlib.suppress(RigFailed):
                await self._delete(path)


@contextlib.asynccontextmanager
async def world(rig: Rig) -> AsyncIterator[World]:
    made = World(rig)
    for namespace in (made.name, made.home):
        await asyncio.to_thread(create, rig, {"kind": "Namespace", "metadata": {"name": namespace}})
    # Nobody makes it where there is no controller manager, and no pod is admitted without.
    account = {"kind": "ServiceAccount", "metadata": {"name": "default", "namespace": made.name}}
    await asyncio.to_thread(create, rig, account)
    try:
        yield made
    finally:
        await made.leave()


def redirect(kubeconfig: Path, url: str, port: int) -> None:
    """The same server, reached through a port of ours."""
    text = kubeconfig.read_text()
    assert url in text
    kubeconfig.write_text(text.replace(url, f"https://127.0.0.1:{port}"))
