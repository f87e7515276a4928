"""What a request asks of a market, and the market's responses on the wire."""

from enum import StrEnum
from urllib.parse import unquote

import msgspec

from forebay.net.transport import Headers, Response
from forebay.providers.simulated.wire import ACCOUNT, GROUPS, INSTANCES, OFFERS, MarketRefusal


class MarketCall(StrEnum):
    """What a request asks for."""

    ACCOUNT = "account"
    OFFERS = "offers"
    LAUNCH = "launch"
    LIST = "list"
    TERMINATE = "terminate"
    LOGS = "logs"
    GROUP = "group"
    GROW = "grow"
    SHRINK = "shrink"


def asked_of(method: str, path: str) -> tuple[MarketCall | None, str]:
    about = ""
    if path.startswith(f"{INSTANCES}/"):
        name, _, rest = path.removeprefix(f"{INSTANCES}/").partition("/")
        about = unquote(name)
        asked = {("DELETE", ""): MarketCall.TERMINATE, ("GET", "logs"): MarketCall.LOGS}.get((method, rest))
        return asked, about
    if path.startswith(f"{GROUPS}/"):
        name, _, rest = path.removeprefix(f"{GROUPS}/").partition("/")
        calls = {
            ("GET", ""): MarketCall.GROUP,
            ("POST", "grow"): MarketCall.GROW,
            ("POST", "shrink"): MarketCall.SHRINK,
        }
        return calls.get((method, rest)), unquote(name)
    found = {
        ("GET", ACCOUNT): MarketCall.ACCOUNT,
        ("GET", OFFERS): MarketCall.OFFERS,
        ("POST", INSTANCES): MarketCall.LAUNCH,
        ("GET", INSTANCES): MarketCall.LIST,
    }
    return found.get((method, path)), about


def json_response(status: int, body: object) -> Response:
    return Response(status, Headers({"Content-Type": "application/json"}), msgspec.json.encode(body))


def refusal(status: int, message: str, code: str = "") -> Response:
    return json_response(status, MarketRefusal(code=code, message=message))
