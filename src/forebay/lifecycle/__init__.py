"""The lifecycle of one GPUInstance, from intent to proof of absence.

Belongs here: the table of states, the next step of a record given the facts about it (launch, registration, liveness,
termination), what a provider's answer means for it, orphans in both directions, cooldowns, and the limit on replacing
unhealthy nodes. Does not belong here: whether capacity is needed (`demand`), which to launch (`planning`), which to
scale down (`disruption`), and any I/O: the engine carries out the steps.
"""
