"""Error responses and the errors they raise."""

import json

import pytest

from forebay.kube import errors
from forebay.net.transport import Headers


def status(code, reason, message="it is so", **details):
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return json.dumps({**body, "details": details} if details else body).encode()


KINDS = {
    (400, "BadRequest"): errors.BadRequest,
    (401, "Unauthorized"): errors.Unauthorized,
    (403, "Forbidden"): errors.Forbidden,
    (404, "NotFound"): errors.NotFound,
    (405, "MethodNotAllowed"): errors.Unsupported,
    (406, "NotAcceptable"): errors.Unsupported,
    (409, "Conflict"): errors.Conflict,
    (409, "AlreadyExists"): errors.AlreadyExists,
    (410, "Expired"): errors.Expired,
    (410, "Gone"): errors.Expired,
    (415, "UnsupportedMediaType"): errors.Unsupported,
    (422, "Invalid"): errors.Invalid,
    (429, "TooManyRequests"): errors.TooManyRequests,
    (500, "InternalError"): errors.ServerUnavailable,
    (503, "ServiceUnavailable"): errors.ServerUnavailable,
    (504, "Timeout"): errors.ServerUnavailable,
    (418, "Teapot"): errors.ApiError,
}


@pytest.mark.parametrize(("answer", "kind"), KINDS.items(), ids=[f"{c} {r}" for c, r in KINDS])
def test_an_error_response_becomes_the_error_of_its_status_and_reason(answer, kind):
    code, reason = answer
    error = errors.from_response(code, Headers(), status(code, reason), call="GET /x")
    assert type(error) is kind
    assert (error.status, error.reason, error.message) == (code, reason, "it is so")
    assert str(error) == f"GET /x: it is so ({code} {reason})"


def test_an_invalid_object_names_every_field_at_fault():
    causes = [
        {"reason": "FieldValueInvalid", "message": 'Invalid value: "0"', "field": "spec.quota.gpuHours"},
        {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.selector"},
    ]
    error = errors.from_response(
        422, Headers(), status(422, "Invalid", name="v", kind="GPUWorkloadBudget", causes=causes)
    )
    assert [(cause.field, cause.reason) for cause in error.causes] == [
        ("spec.quota.gpuHours", "FieldValueInvalid"),
        ("spec.selector", "FieldValueRequired"),
    ]
    assert error.details.kind == "GPUWorkloadBudget"


WAITS = {
    "seconds": ({"Retry-After": "7"}, {}, 7.0),
    "in the body only": ({}, {"retryAfterSeconds": 3}, 3.0),
    "a date, on the server's own clock": (
        {"Retry-After": "Wed, 21 Oct 2015 07:28:30 GMT", "Date": "Wed, 21 Oct 2015 07:28:00 GMT"},
        {},
        30.0,
    ),
    "a date in the past": (
        {"Retry-After": "Wed, 21 Oct 2015 07:27:00 GMT", "Date": "Wed, 21 Oct 2015 07:28:00 GMT"},
        {},
        0.0,
    ),
    "nonsense": ({"Retry-After": "soon"}, {}, None),
    "nothing": ({}, {}, None),
}


@pytest.mark.parametrize(("headers", "details", "seconds"), WAITS.values(), ids=WAITS)
def test_retry_after_is_read_in_every_form(headers, details, seconds):
    error = errors.from_response(503, Headers(headers), status(503, "ServiceUnavailable", **details))
    assert error.retry_after == seconds


def test_an_html_page_of_a_proxy_is_described_and_not_quoted():
    page = b"<html><head><title>502</title></head><body>planted-secret</body></html>"
    error = errors.from_response(502, Headers({"Content-Type": "text/html"}), page, call="GET /api/v1/pods")
    assert isinstance(error, errors.ServerUnavailable)
    assert str(error).startswith("GET /api/v1/pods: the response is not from a Kubernetes API server")
    assert f"an HTML page of {len(page)} bytes" in str(error)
    assert "planted" not in str(error)
    assert str(error).endswith("(502 BadGateway)")


@pytest.mark.parametrize("body", [b"", b"no", b"[1]", b'{"kind": "Pod"}', b"\xff\xfe", b"x" * 5000])
def test_any_other_body_still_gives_one_short_sentence(body):
    error = errors.from_response(500, Headers(), body)
    assert isinstance(error, errors.ServerUnavailable)
    assert "\n" not in str(error)
    assert len(str(error)) < 400


def test_an_error_inside_a_watch_is_the_same_error():
    inside = errors.Status(kind="Status", code=410, reason="Expired", message="too old resource version: 1 (9)")
    assert isinstance(errors.from_status(inside), errors.Expired)


def test_a_kind_that_is_not_installed_is_named_as_such():
    error = errors.from_response(404, Headers({"Content-Type": "text/plain"}), b"404 page not found\n", call="GET /x")

    assert isinstance(error, errors.NotFound)
    assert str(error) == (
        "GET /x: the API server does not serve this kind: its CustomResourceDefinition is not installed (404 NotFound)"
    )


def test_a_missing_page_of_anybody_else_says_nothing_about_a_kind():
    error = errors.from_response(404, Headers({"Content-Type": "text/plain"}), b"no such site", call="GET /x")

    assert "not from a Kubernetes API server" in str(error)
    assert "no such site" in str(error)


def test_of_a_message_that_quotes_a_whole_object_the_beginning_and_the_end_are_told_three_hundred_letters_each():
    message = "a" * 300 + "b" * 5000 + "c" * 300
    assert str(errors.Invalid(message, status=422)).split(" [...] ") == [
        "a" * 300,
        "c" * 300 + " (422 UnprocessableEntity)",
    ]
    whole = "d" * 600
    assert str(errors.Invalid(whole, status=422)).startswith(f"{whole} (422")
