"""One GPUInstance from intent to proof of absence.

Belongs here: the one table of states, the next step of a record given the facts about it, what a provider's answer
means for it, leftovers in both directions, cool-downs and the brake. Does not belong here: whether capacity is needed
(`demand`), which (`planning`), what to give back (`disruption`), and any I/O: the engine acts on the steps.
"""
