"""Controllers of the embedded cluster: scheduler, kubelet, node lifecycle, Jobs, ReplicaSets, disruption budgets.

Belongs here: small controllers that work on the store as the real ones work on the API, write the same statuses,
reasons and messages, and take the time from the event loop alone. They wait for changes and never poll; an object that
a controller cannot read or write gets a Warning event and disturbs no other object.
Does not belong here: rules of the API itself (defaults, validation, garbage collection), and anything about Forebay.

Left out, with an error or event where a user would look: preemption, volumes, resource claims, required topology
spread, gang scheduling, per-index backoff and success policies of Jobs, adoption of pods, Deployments, DaemonSets,
probes.
"""

from forebay.embedded.controllers.nodes import register_node
from forebay.embedded.controllers.runner import CONTROLLERS, Controllers

__all__ = ["CONTROLLERS", "Controllers", "register_node"]
