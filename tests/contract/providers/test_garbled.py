"""Answers that no specification allows: a provider raises one of its errors, and nothing else, whatever a cloud says.

The answers are those of the conformance servers with parts replaced, so that they get past the first look.
"""

import random

import msgspec
import pytest

from forebay.model.sources import Check, Found, Offer
from forebay.net.transport import Response
from forebay.providers.base import ProviderError
from tests.contract.providers.harness import HARNESSES

SEEDS = range(40)
ODD = [
    None,
    True,
    -1,
    0,
    10**30,
    1.5e308,
    -0.0,
    "",
    "\x00\x1b[31m",
    "\uff19",
    "-1",
    "NaN",
    "1e400",
    "9999-99-99T99:99:99Z",
    "2026-01-01",
    [],
    {},
    [None],
    [[]],
    {"": {}},
    "x" * 5000,
]
#: Instead of a whole body.
BODIES = [b"", b"null", b"[]", b"{}", b"0", b'"', b"\xff\xfe", b"{" * 500, b"[" * 2000, b"<html>gateway</html>", b" \n"]


class Garbler:
    """Replaces one to three values of a JSON answer, or all of it."""

    def __init__(self, rng, answer):
        self._rng = rng
        self._answer = answer
        self.on = False

    async def __call__(self, request):
        if not self.on:
            return await self._answer(request)
        try:
            response = await self._answer(request)
        except ValueError:
            # The server was sent what it had been made to say, such as a number of a page that is none.
            response = Response(400, {}, b"{}")
        body = await response.read()
        headers = {name: value for name, value in response.headers.items() if name.lower() != "content-length"}
        status = self._rng.choice((200, 204, 202, 301, 404, 500)) if self._rng.random() < 0.1 else response.status
        return Response(status, headers, self._garbled(body))

    def _garbled(self, body):
        if self._rng.random() < 0.15:
            return self._rng.choice(BODIES)
        try:
            document = msgspec.json.decode(body)
        except msgspec.DecodeError:
            return self._rng.choice(BODIES)
        for _ in range(self._rng.randint(1, 3)):
            document = self._replaced(document)
        return msgspec.json.encode(document)

    def _replaced(self, value):
        """The value with something in it replaced, removed or repeated, at any depth."""
        rng = self._rng
        if not isinstance(value, dict | list) or not value or rng.random() < 0.1:
            return rng.choice(ODD)
        if isinstance(value, list):
            place = rng.randrange(len(value))
            return rng.choice(
                (
                    lambda: [*value[:place], self._replaced(value[place]), *value[place + 1 :]],
                    lambda: [*value, value[place]],
                    lambda: value[:place],
                )
            )()
        key = rng.choice(sorted(value))
        if rng.random() < 0.15:
            return {name: each for name, each in value.items() if name != key}
        return {**value, key: self._replaced(value[key])}


async def outcome(call, sentences):
    try:
        return await call
    except ProviderError as error:
        sentences.append(str(error))
        return None


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", HARNESSES)
async def test_a_garbled_answer_is_an_error_of_the_provider_or_what_it_should_be(name, seed):
    harness = HARNESSES[name]()
    sentences = []
    garbler = harness.world.answer = Garbler(random.Random(f"{name} {seed}"), harness.world.answer)
    async with harness.open():
        request, other = await harness.request("uid-1"), await harness.request("uid-2", "one")
        launched = await harness.provider.launch(request)
        garbler.on = True
        offers = await outcome(harness.provider.offers(), sentences)
        found = await outcome(harness.provider.instances(), sentences)
        check = await harness.provider.check()
        second = await outcome(harness.provider.launch(other), sentences)
        await outcome(harness.provider.terminate(launched.id), sentences)
        garbler.on = False
        # Whatever it was told before, it now sees what there is.
        listed = {each.id for each in (await harness.provider.instances()).instances}
        getattr(harness.world, "violations", []).clear()
    assert listed <= harness.running() | {launched.id}
    assert isinstance(check, Check)
    assert [each for each in (check.sentence, *sentences) if not 0 < len(each) < 2000] == []
    if offers is not None:
        assert all(isinstance(each, Offer) for each in offers)
        # A negative price is the planner's to refuse: it names the offer.
        assert all(each.gpu_count >= 0 for each in offers)
    if found is not None:
        assert isinstance(found, Found)
        assert all(isinstance(each.id, str) and each.id for each in found.instances)
    if second is not None:
        assert isinstance(second.id, str)
        assert second.id
