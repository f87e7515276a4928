"""Manifests of predecessors as manifests of Forebay, and what people must know about the difference.

Belongs here: pure functions from documents to documents and notes, one module per predecessor. Does not belong here:
reading files or clusters (`cli`), and what only this release's providers know (they are given by their capabilities).
"""
