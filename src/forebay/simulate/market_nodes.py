"""`EmbeddedKubelets`: rented machines as nodes of the embedded cluster."""

import base64
import re
from datetime import datetime
from functools import partial
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from forebay.embedded.api.kinds import NODE_KIND, SECRET_KIND, SIGNING_REQUEST_KIND
from forebay.embedded.api.objects import Json
from forebay.embedded.api.store import Store
from forebay.embedded.controllers import register_node
from forebay.embedded.controllers.nodes import KUBELET
from forebay.net.clock import now
from forebay.simulate.market_goods import Rented

_TOKEN: Final = re.compile(r"\b([a-z0-9]{6})\.([a-z0-9]{16})\b")
#: The provider id that a machine is told to register with.
_PROVIDER_ID: Final = re.compile(r"provider-id\b[=:\s\w]*?(forebay://[-\w/]+)")
#: Seconds between two tries with a token that is refused, and between two looks at a request.
_RETRY: Final = 10.0
_LOOK: Final = 1.0


class EmbeddedKubelets:
    """Kubelets of rented machines. The Node object of a machine that is off stays, until somebody deletes it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def boot(self, rented: Rented, *, gpus_appear: bool) -> None:
        """A machine whose boot payload holds a bootstrap token asks for a certificate first, as kubelets do."""
        token = _TOKEN.search(rented.order.boot or "")
        if token is None:
            self._register(rented, gpus_appear=gpus_appear)
        else:
            self._ask(rented, token[1], token[2], gpus_appear=gpus_appear)

    def _ask(self, rented: Rented, token_id: str, secret: str, *, gpus_appear: bool) -> None:
        """Requests the certificate of the node, again and again while the token is refused."""
        if rented.node_name is None:
            return
        if not self._accepts(token_id, secret):
            rented.later(_RETRY, partial(self._ask, rented, token_id, secret, gpus_appear=gpus_appear))
            return
        request = {
            "metadata": {"name": _csr_name(rented)},
            "spec": {
                "request": base64.b64encode(_pkcs10(rented.node_name)).decode(),
                "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
                "usages": ["digital signature", "client auth"],
                "username": f"system:bootstrap:{token_id}",
                "groups": ["system:bootstrappers", "system:authenticated"],
            },
        }
        self._store.create(SIGNING_REQUEST_KIND, request)
        self._await_approval(rented, gpus_appear=gpus_appear)

    def _await_approval(self, rented: Rented, *, gpus_appear: bool) -> None:
        found = self._store.find(SIGNING_REQUEST_KIND, None, _csr_name(rented))
        conditions = ((found or {}).get("status") or {}).get("conditions") or ()
        if any(each["type"] == "Approved" for each in conditions):
            self._register(rented, gpus_appear=gpus_appear)
        else:
            rented.later(_LOOK, partial(self._await_approval, rented, gpus_appear=gpus_appear))

    def _accepts(self, token_id: str, secret: str) -> bool:
        """Whether the API server lets the token in: it exists, is the right one, and has not expired."""
        found = self._store.find(SECRET_KIND, "kube-system", f"bootstrap-token-{token_id}")
        if found is None:
            return False
        data = {key: base64.b64decode(value).decode() for key, value in (found.get("data") or {}).items()}
        expires = data.get("expiration")
        return data.get("token-secret") == secret and (expires is None or datetime.fromisoformat(expires) > now())

    def stop(self, rented: Rented) -> None:
        node = self._node(rented)
        if node is None:
            return
        meta = node["metadata"]
        annotations = {**(meta.get("annotations") or {}), KUBELET: "dead"}
        self._store.update(NODE_KIND, {**node, "metadata": {**meta, "annotations": annotations}})

    def _register(self, rented: Rented, *, gpus_appear: bool) -> None:
        planned, sku = rented.order.node, rented.sku
        if (own := self._node(rented)) is not None:
            self._revive(own)
            return
        if planned is None or self._store.find(NODE_KIND, None, planned.name) is not None:
            # Another machine has this name: the API server refuses a second Node.
            return
        gpus = sku.gpus if gpus_appear and not sku.driver else 0
        register_node(
            self._store,
            planned.name,
            allocatable={**sku.allocatable, sku.gpu_resource: gpus},
            labels=planned.labels,
            taints=[{"key": each.key, "value": each.value, "effect": each.effect} for each in planned.taints],
            provider_id=provider_id_of(rented),
        )
        if gpus_appear and sku.driver:
            rented.later(sku.driver, partial(self._gpus_allocatable, rented))

    def _revive(self, node: Json) -> None:
        """The machine of this Node was recreated under its name: its kubelet takes the Node over."""
        meta = node["metadata"]
        annotations = {key: value for key, value in (meta.get("annotations") or {}).items() if key != KUBELET}
        self._store.update(NODE_KIND, {**node, "metadata": {**meta, "annotations": annotations}})

    def _gpus_allocatable(self, rented: Rented) -> None:
        node = self._node(rented)
        if node is None:
            return
        count, status = str(rented.sku.gpus), node.get("status") or {}
        amounts = {
            field: {**(status.get(field) or {}), rented.sku.gpu_resource: count}
            for field in ("capacity", "allocatable")
        }
        self._store.update(NODE_KIND, {**node, "status": {**status, **amounts}}, subresource="status")

    def _node(self, rented: Rented) -> Json | None:
        """The Node of this very machine."""
        node = self._store.find(NODE_KIND, None, rented.node_name) if rented.node_name is not None else None
        own = node is not None and (node.get("spec") or {}).get("providerID") == provider_id_of(rented)
        return node if own else None


def _csr_name(rented: Rented) -> str:
    # An id may be a path, as ZONE/NAME is.
    return f"node-csr-{rented.id.replace('/', '.')}"


def provider_id_of(rented: Rented) -> str | None:
    """The one that its boot payload says, as kubelets register; else the market's own."""
    told = _PROVIDER_ID.search(rented.order.boot or "")
    return told[1] if told is not None else rented.provider_id


def _pkcs10(node: str) -> bytes:
    """A request for a kubelet's client certificate, with a new key."""
    names = [(NameOID.COMMON_NAME, f"system:node:{node}"), (NameOID.ORGANIZATION_NAME, "system:nodes")]
    subject = x509.Name([x509.NameAttribute(oid, value) for oid, value in names])
    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM)
