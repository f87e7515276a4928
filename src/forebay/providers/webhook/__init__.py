"""Machines you own, switched on and off by HTTP calls of your choice.

Belongs here: machines named by the environment, the calls to their endpoints and what the answers mean, signatures,
status answers, and the machines as offers.
Does not belong here: which machine is wanted when (planning, disruption), and what becomes of one that does not boot
(lifecycle).
"""
