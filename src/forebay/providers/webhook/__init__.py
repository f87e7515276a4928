"""Machines you own, powered on and off by HTTP calls to endpoints of your choice.

Belongs here: machines named by environment variables, the calls to endpoints and the meaning of their responses,
signatures, power states, and the machines as offers.
Does not belong here: which machine is wanted when (`planning`, `disruption`), and what follows when one does not boot
(`lifecycle`).
"""
