"""What makes an embedded cluster move: scheduler, kubelet, node lifecycle, Jobs, ReplicaSets, disruption budgets.

Belongs here: small controllers that work on the store as the real ones work on the API, write the same statuses,
reasons and messages, and take their time from the event loop alone. They wait for changes and never poll; what one
bad object does is told in an event on that object.
Does not belong here: rules of the API itself (defaults, validation, garbage collection), and anything about Forebay.

Left out, and said so where a user would look: preemption, volumes, resource claims, required topology spread, gang
scheduling, per-index back-off and success policies of Jobs, adoption of pods, Deployments, DaemonSets, probes.
"""

from forebay.embedded.controllers.nodes import register_node
from forebay.embedded.controllers.runner import CONTROLLERS, Controllers

__all__ = ["CONTROLLERS", "Controllers", "register_node"]
