"""Thousands of worlds would print millions of lines; what a fault of ours would log is raised instead."""

import logging

import pytest
import structlog

from forebay.embedded.api import cel

# Raises the recursion limit, which Hypothesis does not want to see inside a law.
cel._environment()


@pytest.fixture(autouse=True)
def quiet():
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR), processors=[_raised])
    yield
    structlog.configure(**before)


def _raised(_logger, _method, event):
    raise AssertionError(f"an error was logged: {event}")
