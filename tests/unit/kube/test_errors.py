"""What an error of the API server is called, what it says and how long to wait, whatever answered."""

import json

import pytest

from forebay.kube.errors import (
    ApiError,
    Expired,
    NotFound,
    ServerUnavailable,
    Status,
    StatusCause,
    TooManyRequests,
    Unauthorized,
    from_response,
    from_status,
)
from forebay.kube.errors import Details as Told
from forebay.net.transport import Headers


def answered(status, body=b"", **headers):
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return from_response(status, Headers(fields), body, call="GET https://host/api")


def said(**fields):
    return json.dumps({"kind": "Status", **fields}).encode()


@pytest.mark.parametrize(
    ("own", "told", "status"),
    [(404, {"code": 410}, 404), (0, {"code": 410}, 410), (0, {}, 500), (429, {}, 429)],
)
def test_the_status_of_the_response_goes_before_that_of_its_body(own, told, status):
    assert from_status(Status(**told), status=own).status == status


@pytest.mark.parametrize(
    ("own", "details", "wait"),
    [
        (None, None, None),
        (None, Told(), None),
        (None, Told(retry_after_seconds=7), 7.0),
        (3.0, Told(retry_after_seconds=7), 3.0),
        (0.0, Told(retry_after_seconds=7), 0.0),
        (3.0, None, 3.0),
    ],
)
def test_the_header_says_how_long_to_wait_and_without_it_the_body(own, details, wait):
    assert from_status(Status(details=details), status=429, retry_after=own).retry_after == wait


@pytest.mark.parametrize(
    ("status", "message", "shown"),
    [
        (401, "", "the server does not accept our credentials, which are missing, wrong or expired (401 Unauthorized)"),
        (401, "Unauthorized", "the server does not accept our credentials, which are missing, wrong or expired"),
        (401, "token has expired.", "token has expired (401 Unauthorized)"),
        (403, "", "Forbidden (403 Forbidden)"),
        (403, "Forbidden", "Forbidden (403 Forbidden)"),
        (599, "", "Status 599 (599 Status599)"),
    ],
)
def test_an_error_without_a_message_says_what_its_status_means(status, message, shown):
    found = answered(status, said(message=message))
    assert str(found).startswith(f"GET https://host/api: {shown}")
    assert isinstance(found, {401: Unauthorized, 599: ServerUnavailable}.get(status, ApiError))


def test_an_error_without_details_has_no_causes():
    assert answered(403, said()).causes == ()
    assert answered(403, said()).details == Told()


@pytest.mark.parametrize(
    ("reasons", "by_budget"),
    [((), False), (("DisruptionBudget",), True), (("Other",), False), (("Other", "DisruptionBudget"), True)],
)
def test_an_eviction_was_refused_by_a_budget_if_one_of_the_causes_says_so(reasons, by_budget):
    causes = tuple(StatusCause(reason=each) for each in reasons)
    found = from_status(Status(details=Told(causes=causes)), status=429)
    assert isinstance(found, TooManyRequests)
    assert found.by_disruption_budget is by_budget


STRANGER = "the response is not from a Kubernetes API server, or a proxy cut it short: "


@pytest.mark.parametrize(
    ("status", "body", "kind", "shown"),
    [
        (404, b"404 page not found\n", "text/plain", "the API server does not serve this kind: its Custom"),
        (500, b"404 page not found\n", "text/plain", f"{STRANGER}404 page not found"),
        (404, b"nothing here", "text/plain", f"{STRANGER}nothing here"),
        (
            429,
            b"Too many requests,\n please try again later.",
            "text/plain",
            "Too many requests, please try again later",
        ),
        (502, b"", "text/plain", f"{STRANGER}the body is empty"),
        (502, b"gone", "Text/HTML; charset=utf-8", f"{STRANGER}an HTML page of 4 bytes"),
        (502, b" <p>", "text/plain", f"{STRANGER}an HTML page of 4 bytes"),
        (502, b"1 < 2", "text/plain", f"{STRANGER}1 < 2"),
        (502, b"x" * 200, "text/plain", f"{STRANGER}{'x' * 200} (502"),
        (502, b"x" * 201, "text/plain", f"{STRANGER}{'x' * 200} [...] (502"),
        (502, b"\xff\xfe", "text/plain", f"{STRANGER}\ufffd\ufffd"),
        (502, b'{"kind": "Pod"}', "application/json", f'{STRANGER}{{"kind": "Pod"}}'),
    ],
    ids=lambda each: str(each)[:20],
)
def test_what_did_not_come_from_an_api_server_is_quoted(status, body, kind, shown):
    assert str(answered(status, body, Content_Type=kind)).startswith(f"GET https://host/api: {shown}")


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [(410, "Expired", Expired), (410, "Gone", Expired), (500, "Expired", Expired), (404, "NotFound", NotFound)],
)
def test_what_has_expired_is_listed_again_whatever_its_status(status, reason, kind):
    assert type(answered(status, said(reason=reason))) is kind


@pytest.mark.parametrize(("length", "cut"), [(600, False), (601, True)])
def test_a_long_message_keeps_its_beginning_and_its_end(length, cut):
    message = "a" * 300 + "b" * (length - 600) + "c" * 300
    shown = answered(422, said(message=message))
    assert ("a [...] c" in str(shown)) is cut
    assert str(shown).count("a" * 300) == str(shown).count("c" * 300) == 1


def test_a_date_is_compared_with_the_clock_of_the_server():
    late = {"Retry_After": "Tue, 01 Jan 2030 00:00:30 GMT", "Date": "Tue, 01 Jan 2030 00:00:10 GMT"}
    assert answered(503, b"", **late).retry_after == 20
    assert answered(503, b"", Retry_After="5").retry_after == 5
    assert answered(503, b"").retry_after is None
