"""A process that wants to lead, and says on standard output what it sees and does, one line each.

    candidate.py KUBECONFIG NAMESPACE IDENTITY DURATION RENEW_DEADLINE RETRY

`acted T` and `held-back T` each time it wanted to act, `renewed T` with the start of each renewal that worked, `saw T`
with each new holder of the lease; T is on CLOCK_MONOTONIC, which all processes of a machine share.
"""

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

from forebay.kube import config
from forebay.kube.connection import election_client
from forebay.kube.lease import Elector, LeadershipLost, Terms


def say(word: str, moment: float) -> None:
    os.write(sys.stdout.fileno(), f"{word} {moment}\n".encode())


async def main(kubeconfig: str, namespace: str, identity: str, *seconds: str) -> None:
    duration, renew_deadline, retry = map(float, seconds)
    terms = Terms(duration=duration, renew_deadline=renew_deadline, retry=retry)
    client = election_client(config.load_config(env={}, path=Path(kubeconfig)), terms=terms)
    loop = asyncio.get_running_loop()
    elector = Elector(
        client, namespace, "forebay", identity, terms=terms, on_new_leader=lambda _: say("saw", loop.time())
    )

    async def act() -> None:
        renewed = None
        while True:
            # Taken before the question: the time at which the act was decided, however long the process is then paused.
            now = loop.time()
            if elector._renewed_at not in (None, renewed):
                renewed = elector._renewed_at
                say("renewed", renewed)
            say("acted" if elector.still_leader(now) else "held-back", now)
            await asyncio.sleep(0.01)

    task = asyncio.current_task()
    assert task is not None
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        while True:
            with contextlib.suppress(LeadershipLost):
                await elector.run(act)
    finally:
        await client.close()


if __name__ == "__main__":
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(main(*sys.argv[1:]))
