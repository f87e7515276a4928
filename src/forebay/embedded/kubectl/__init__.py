"""Parts of the API server that only kubectl asks for: tables and their columns, protobuf bodies, OpenAPI documents.

Frozen: it grows only when a kubectl command that people use every day needs more. Forebay itself uses none of it.
"""
