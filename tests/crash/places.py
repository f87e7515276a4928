"""At which requests a process dies: a few of each world in the everyday suite, others by chance in `make deep`."""

import random

import msgspec

from tests.crash.market_worlds import rents
from tests.crash.mortal import Moment
from tests.deep import DEEP, EVERY_REQUEST, SEED
from tests.engine.power_world import SERVER


class Death(msgspec.Struct, frozen=True):
    number: int
    moment: Moment


def deaths_of(scenario, *, few, nth=0):
    """Deaths to try in the world: before and after `few` requests that change something, for another `nth` at others.

    In `make deep`: at `few` requests by chance, whatever they are about, in each slice at others; or at every one.
    """
    requests = _until_rest(rests(scenario))
    if not DEEP:
        requests = [sent for sent in requests if _changes(sent)]
        step = max(1, len(requests) // few)
        requests = requests[nth % step :: step][:few]
    elif not EVERY_REQUEST:
        deaths = [Death(sent.number, moment) for moment in Moment for sent in places(requests, moment)]
        return random.Random(f"{SEED} {nth}").sample(deaths, min(few, len(deaths)))
    return [Death(sent.number, moment) for sent in requests for moment in Moment]


def rests(scenario):
    """The outcome of the world in which nobody dies, and nothing is wrong."""
    whole = rents(scenario)
    assert whole.found == ()
    return whole


def part_of_deaths(whole, moment, part, parts):
    """Deaths at every request of the world, divided into parts, so that they can be tried side by side."""
    return [Death(sent.number, moment) for sent in places(_until_rest(whole), moment)[part::parts]]


def places(requests, moment):
    """Requests at which a death makes a difference: what was read and is forgotten is as if nobody had asked for it."""
    return [sent for sent in requests if moment is Moment.BEFORE or sent.method != "GET"]


def _until_rest(whole):
    return [sent for sent in whole.ledger.requests if sent.at <= whole.quiet_at + 35]


def _changes(sent):
    return not sent.is_lease and (sent.method != "GET" or not sent.url.startswith(SERVER))


def survives(scenario, death):
    """Breaches of the world in which the operator dies there, with where that was."""
    outcome = rents(scenario, {death.number: death.moment})
    killed = [f"{moment} {sent}" for sent, moment in outcome.ledger.died]
    assert len(killed) <= 1
    return (*killed, *outcome.found) if outcome.found else ()


def breaches_with_crashes(faults, name):
    """Breaches of the world of that name, with a few deaths of the operator besides its fault."""
    deaths = deaths_of(faults[name], few=2, nth=list(faults).index(name))
    return [breach for death in deaths for breach in survives(faults[name], death)]
