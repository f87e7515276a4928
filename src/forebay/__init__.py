"""Forebay: GPU capacity for Kubernetes. No leak, no mystery."""

__version__ = "0.1.0"
