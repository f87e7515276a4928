"""Requests of kubelets for their client certificates (CertificateSigningRequests), as far as Forebay judges them."""

from datetime import datetime
from typing import Final

import msgspec

#: Signer of the certificates with which kubelets authenticate.
KUBELET_CLIENT_SIGNER: Final = "kubernetes.io/kube-apiserver-client-kubelet"
#: Signer of the certificates by which API servers know kubelets.
KUBELET_SERVING_SIGNER: Final = "kubernetes.io/kubelet-serving"
_TOKEN_USER: Final = "system:bootstrap:"  # noqa: S105 (a prefix of user names)


class SigningRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    name: str
    uid: str
    resource_version: int
    created: datetime
    #: Who made the request: `system:bootstrap:<token id>` for a machine with a bootstrap token.
    username: str
    #: The node whose certificate is requested; None where the subject is no node's.
    node_name: str | None
    #: What keeps the request from being one for a plain kubelet client certificate; None: nothing.
    malformed: str | None = None
    #: Fingerprint of the public key: two requests with one key come from the same machine.
    public_key: str
    approved: bool = False
    #: Reason in the condition Approved; Forebay writes `NodeCertificateApproved`.
    approval_reason: str | None = None
    #: Denied, or the signer failed: nobody can do anything about it any more.
    closed: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return ("", self.name)

    @property
    def token_id(self) -> str | None:
        """The bootstrap token that the request was made with; None where it was made with another credential."""
        return self.username.removeprefix(_TOKEN_USER) if self.username.startswith(_TOKEN_USER) else None
