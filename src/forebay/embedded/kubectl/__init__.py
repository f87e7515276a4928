"""What only kubectl asks of an API server: tables, protobuf bodies, OpenAPI documents.

Frozen: it grows only when a kubectl command that people use every day needs more. Forebay itself uses none of it.
"""
