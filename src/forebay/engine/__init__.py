"""The operator's heartbeat: observe, think, apply, and wait for the next reason to.

Belongs here: the snapshot, the tick that turns it into decisions (pure, `now` an argument), their application through
the client, and the loop with its wake-ups. Does not belong here: how Kubernetes or a provider is spoken to, what a
price means, or any question that another room can answer from values alone.
"""
