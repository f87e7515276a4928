"""Starts a conformance server by hand: `python -m tests.contract.providers lambdalabs --port 8600`."""

import argparse
import asyncio

from forebay.net.serve import serving
from tests.contract.providers.clouds import CLOUDS

_CLASS = """\
{name} is served at {base}. Point a GPUNodeClass at it:

apiVersion: forebay.dev/v1alpha1
kind: GPUNodeClass
metadata: {{name: {name}-trial}}
spec:
  providers:
    - name: {name}
      endpoint: {base}{path}
      credentialsRef: {{name: {name}-trial, key: api-key}}
  cloudInit:
    template: |
      {shebang}
      # {join}

with the key that it accepts:

kubectl --namespace kube-system create secret generic {name}-trial --from-literal=api-key='{key}'
"""


async def _serve(name, port):
    cloud = CLOUDS[name]
    server = cloud.make()
    async with serving(server.answer, port=port) as base:
        key = server.key if cloud.credentials is None else cloud.credentials(server, base)
        print(
            _CLASS.format(name=name, base=base, path=cloud.path, key=key, join=cloud.join_line, shebang=cloud.shebang),
            flush=True,
        )
        shown = 0
        while True:
            await asyncio.sleep(1)
            for each in server.violations[shown:]:
                print(f"violation of the API: {each}", flush=True)
            shown = len(server.violations)


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.contract.providers", description=__doc__)
    parser.add_argument("name", choices=sorted(CLOUDS))
    parser.add_argument("--port", type=int, default=0, help="default: any that is free")
    arguments = parser.parse_args()
    try:
        asyncio.run(_serve(arguments.name, arguments.port))
    except KeyboardInterrupt:
        print()


if __name__ == "__main__":
    main()
