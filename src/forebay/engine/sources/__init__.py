"""Providers at work: which there should be, and one polling task for each.

Belongs here: building providers from GPUNodeClasses and settings, polling their offers and instances, reading their
Secrets. Does not belong here: how a provider is spoken to (`providers`).
"""
