"""`forebay run`, but for the terms of its lease: seconds, given in the environment as HASTY_LEASE.

Whoever is killed every two seconds would never lead under terms of fifteen. Users have no such setting.
"""

import asyncio
import os

from forebay.kube.lease import Terms
from forebay.settings import read_settings
from forebay.wiring.logs import configure_logging
from forebay.wiring.operator import run_operator

if __name__ == "__main__":
    duration = float(os.environ["HASTY_LEASE"])
    terms = Terms(duration=duration, renew_deadline=duration * 0.7, retry=duration * 0.2)
    settings = read_settings({}, os.environ)
    asyncio.run(run_operator(settings, os.environ, configure_logging(settings, level="info"), terms))
