"""`python -m tests.contract.tailnets --port N`: the conformance server of Tailscale's API, to try a class against."""

import argparse
import asyncio
import sys

from forebay.net.serve import serving
from tests.contract.tailnets.server import CLIENT, TailscaleServer


async def main(port):
    async with serving(TailscaleServer().answer, port=port) as served:
        sys.stdout.write(f"Tailscale's API at {served}/api/v2, client {CLIENT[0]} with secret {CLIENT[1]}\n")
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.contract.tailnets", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    asyncio.run(main(parser.parse_args().port))
