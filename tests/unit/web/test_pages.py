"""Pages for probes and Prometheus."""

import pytest

from forebay.net.transport import Request
from forebay.web.pages import pages


async def ask(path, *, method="GET", alive=None, ready=None):
    handler = pages(
        alive=lambda: alive, ready=lambda: ready, metrics=lambda: (b"forebay_up 1\n", "text/plain; version=0.0.4")
    )
    response = await handler(Request(method=method, url=f"http://127.0.0.1:8080{path}"))
    return response.status, (await response.read()).decode()


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/readyz?verbose"])
async def test_a_healthy_operator_answers_ok(path):
    assert await ask(path) == (200, "ok\n")


async def test_an_operator_that_is_not_ready_says_why_and_is_not_restarted_for_it():
    why = "pods are not listed yet: connection refused"

    assert await ask("/readyz", ready=why) == (503, f"{why}\n")
    assert await ask("/healthz", ready=why) == (200, "ok\n")


async def test_metrics_are_served():
    assert await ask("/metrics") == (200, "forebay_up 1\n")


async def test_pages_are_read_only():
    assert (await ask("/readyz", method="POST"))[0] == 405


async def test_an_unknown_path_names_the_pages():
    assert await ask("/") == (404, "not found; served here: /healthz, /readyz, /metrics\n")
