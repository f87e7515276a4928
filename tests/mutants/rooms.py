"""Rooms that mutants are made of: the pure rooms, and the shell that decides what is written."""

from typing import Final

_CORE: Final = "model api demand budgets planning lifecycle disruption reconcile reporting"
ROOMS: Final = (*_CORE.split(), "net", "kube", "engine")
