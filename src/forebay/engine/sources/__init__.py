"""Providers in use: which ones are configured, and one polling task pair for each.

Belongs here: building providers from GPUNodeClasses and settings, polling their offers and instances, reading their
Secrets. Does not belong here: the APIs of providers (`providers`).
"""
