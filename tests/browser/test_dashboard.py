"""The dashboard in a real browser: live, inert to hostile names, and usable with 5,000 machines and without scripts."""

import itertools
import time
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from forebay.net.redaction import Redactor
from forebay.net.serve import PUBLIC, serving
from forebay.reporting.observation import Standby
from forebay.web.access import for_this_machine
from forebay.web.dashboard import Dashboard
from tests.browser.chromium import browser
from tests.unit.reporting.objects import NOW, S, pod, record
from tests.unit.web.observations import HOSTILE, budgets, observed

pytestmark = [pytest.mark.browser, pytest.mark.real_time]

PATHS = ("/", "/demand", "/machines", "/money", "/budgets", "/offers", "/decisions", "/machines/m1", "/pods/team/waits")


@asynccontextmanager
async def opened(seen, path="/", **look):
    """A tab with the dashboard; `seen` is a list whose first item is what there is to show."""
    dashboard = Dashboard(lambda: seen[0], Redactor(), refresh=0.05)
    async with serving(for_this_machine(dashboard.handle), limits=PUBLIC) as base, browser() as tab:
        tab.base = base
        await tab.look(**look)
        await tab.open(f"{base}{path}")
        yield tab


async def text(tab, selector):
    return await tab.value(f"document.querySelector({selector!r})?.innerText ?? ''")


async def test_every_page_loads_without_an_error_and_asks_nobody_else():
    async with opened([observed()]) as tab:
        for path in PATHS:
            await tab.open(f"{tab.base}{path}")
            assert await tab.value("document.querySelectorAll('h1').length") == 1
        assert tab.errors == []
        assert [url for url in tab.requests if not url.startswith(tab.base)] == []


async def test_a_new_tick_changes_the_page_and_nothing_that_the_reader_does():
    seen = [observed()]
    async with opened(seen, "/machines") as tab:
        await tab.until("document.getElementById('live').innerText === 'live'")
        await tab.value("document.getElementById('q').focus()")
        for key in "rack":
            await tab.press(key, text=key)
        await tab.value("document.querySelector('tbody tr').dataset.seen = 'before'; window.here = true")
        later = record("rack-9", S.LAUNCHING, pods=())
        seen[0] = observed(now=NOW + timedelta(minutes=1), records=(record(), later))

        await tab.until("document.getElementById('machines').innerText.includes('rack-9')")

        assert await tab.value("window.here"), "the page was not loaded again"
        assert await tab.value("document.getElementById('q').value") == "rack"
        assert await tab.value("document.activeElement.id") == "q"
        assert await text(tab, "#seen") == "as of 12:01:00 UTC"
        assert await tab.value("document.querySelectorAll('#machines tbody tr').length") == 2
        assert tab.errors == []


async def test_updates_can_be_paused_by_the_keyboard_alone():
    seen = [observed()]
    async with opened(seen) as tab:
        await tab.until("document.getElementById('live').innerText === 'live'")
        await tab.value("document.querySelector('.status button').focus()")
        await tab.press("Enter", code=13, text="\r")
        assert await text(tab, ".status button") == "Resume"
        seen[0] = observed(now=NOW + timedelta(minutes=1), pending=())
        await tab.value("new Promise((done) => setTimeout(done, 400))")
        assert await text(tab, "#seen") == "as of 12:00:00 UTC"

        await tab.press("Enter", code=13, text="\r")

        await tab.until("document.getElementById('seen').innerText === 'as of 12:01:00 UTC'")


async def test_hostile_names_do_nothing_now_and_after_an_update():
    def hostile(minute):
        waits = pod(HOSTILE, capacity=f"NoOfferFits: {HOSTILE}")
        machines = (record(HOSTILE, message=HOSTILE, pods=()),)
        return observed(now=NOW + timedelta(minutes=minute), pending=(waits,), records=machines)

    seen = [hostile(0)]
    async with opened(seen) as tab:
        await tab.value("window.pwned = () => { window.caught = true }")
        await tab.until("document.getElementById('live').innerText === 'live'")
        seen[0] = hostile(1)
        await tab.until("document.getElementById('seen').innerText === 'as of 12:01:00 UTC'")

        assert await tab.value("document.querySelectorAll('main img, main script').length") == 0
        assert not await tab.value("window.caught === true")
        assert "<script>pwned()</script>" in await text(tab, "#waiting")
        assert tab.errors == []


async def test_without_scripts_the_tables_and_the_filter_work():
    many = tuple(record(f"m{number}", pods=()) for number in range(120))
    async with opened([observed(records=many)], "/machines?page=2", scripts=False) as tab:
        assert "page 2 of 3" in await text(tab, ".pager")
        await tab.open(f"{tab.base}/machines?q=m119")
        assert await tab.value("document.querySelectorAll('#machines tbody tr').length") == 1
        assert await tab.value("document.querySelector('.status button')") is None


async def test_five_thousand_machines_and_ten_thousand_pods_stay_usable():
    records = tuple(record(f"m{number}", pods=()) for number in range(5000))
    waiting = tuple(pod(f"waits-{number}", capacity="NoOfferFits: None fits.") for number in range(10_000))
    made, state = budgets(200)
    minutes = itertools.count(1)

    def next_tick():
        return observed(
            now=NOW + timedelta(minutes=next(minutes)),
            records=records,
            pending=waiting,
            budgets=made,
            budget_state=state,
        )

    seen = [next_tick()]
    async with opened(seen) as tab:
        for path in PATHS[:7]:
            began = time.perf_counter()
            await tab.open(f"{tab.base}{path}")
            assert time.perf_counter() - began < 5, path
            assert await tab.value("document.getElementsByTagName('*').length") < 5000, path
        await tab.open(f"{tab.base}/machines")
        await tab.until("document.getElementById('live').innerText === 'live'")
        seen[0] = next_tick()
        await tab.until("document.getElementById('seen').innerText === 'as of 12:02:00 UTC'")


@pytest.mark.parametrize("path", PATHS)
async def test_a_narrow_window_does_not_scroll_sideways(path):
    long = "a-very-long-name-" * 8
    seen = observed(pending=(pod(long, capacity=f"NoOfferFits: {long}"), pod("waits")))
    async with opened([seen], path, width=360, height=800) as tab:
        assert await tab.value("document.documentElement.scrollWidth") <= 360


async def test_dark_and_light_follow_the_reader():
    async with opened([observed()]) as tab:
        colour = "getComputedStyle(document.body).backgroundColor"
        light = await tab.value(colour)
        await tab.look(dark=True)
        assert await tab.value(colour) != light


@pytest.mark.parametrize("dark", [False, True])
async def test_text_has_enough_contrast(dark):
    """At least 4.5 to 1 (WCAG AA) for all text, against the nearest background that is not transparent."""
    script = """
    (() => {
      const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
      const light = (colour) => {
        const linear = (part) => part <= .03928 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4;
        const [r, g, b] = parse(colour).map((part) => linear(part / 255));
        return .2126 * r + .7152 * g + .0722 * b;
      };
      const back = (node) => {
        for (; node; node = node.parentElement) {
          const colour = getComputedStyle(node).backgroundColor, [, , , alpha = 1] = parse(colour);
          if (alpha > .5) return colour;
        }
        return 'rgb(255, 255, 255)';
      };
      const poor = new Set();
      const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
      while (walker.nextNode()) {
        const node = walker.currentNode.parentElement;
        if (!walker.currentNode.nodeValue.trim() || node.closest('svg, noscript')) continue;
        const [one, other] = [light(getComputedStyle(node).color), light(back(node))];
        const ratio = (Math.max(one, other) + .05) / (Math.min(one, other) + .05);
        if (ratio < 4.5) poor.add(`${node.className || node.nodeName} ${ratio.toFixed(2)}`);
      }
      return [...poor];
    })()
    """
    states = tuple(record(f"m-{state}".lower(), state, pods=()) for state in S)
    async with opened([observed(records=states)], "/machines", dark=dark) as tab:
        for path in ("/machines", "/", "/budgets", "/offers"):
            await tab.open(f"{tab.base}{path}")
            assert await tab.value(script) == [], path


async def test_every_control_has_a_name_and_every_table_a_caption():
    script = """
    [...document.querySelectorAll('a, button, input:not([type=hidden]), svg[role=img]')]
      .filter((each) => !(each.innerText || each.getAttribute('aria-label') || each.labels?.length))
      .map((each) => each.outerHTML.slice(0, 80))
    """
    async with opened([observed()]) as tab:
        for path in PATHS:
            await tab.open(f"{tab.base}{path}")
            assert await tab.value(script) == [], path
            assert await tab.value("[...document.querySelectorAll('table')].every((each) => each.caption)"), path


async def test_a_standby_says_so_and_shows_the_cluster_as_soon_as_it_leads():
    seen = [Standby("forebay-0")]
    async with opened(seen) as tab:
        assert "The leader is forebay-0." in await text(tab, "main")
        seen[0] = observed()
        await tab.until("document.querySelector('main').innerText.includes('Waiting pods')")
