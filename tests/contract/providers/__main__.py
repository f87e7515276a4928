"""Starts a conformance server by hand: `python -m tests.contract.providers lambdalabs --port 8600`.

With `--kubeconfig`, its machines become nodes of that cluster, which must be one of `forebay embedded`.
"""

import argparse
import asyncio

from forebay.api.names import OPERATOR_NAMESPACE
from forebay.net.serve import serving
from tests.contract.providers.clouds import CLOUDS
from tests.contract.providers.kubectl_nodes import KubectlNodes

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
{join}
with the key that it accepts:

kubectl --namespace {namespace} create secret generic {name}-trial --from-literal=api-key='{key}'
"""


_JOIN = """\
  cloudInit:
    template: |
      {shebang}
      # {join}
"""


_GROUPS = """
It has the managed instance groups {groups}. Size them by a NodeProvisioner, with the same Secret:

apiVersion: forebay.dev/v1alpha1
kind: NodeProvisioner
metadata: {{name: trial}}
spec:
  existingInstanceGroupNames: [{groups}]
  minGPUUtilizationPercent: 80
  minUnutilizedGPUNodes: 1
  scaleDownDelay: 1m
  provider:
    name: {name}
    location: us-central1-a
    endpoint: {base}
    credentialsRef: {{name: {name}-trial, namespace: {namespace}, key: api-key}}
"""


async def _serve(name, port, kubeconfig):
    cloud = CLOUDS[name]
    server = cloud.make()
    if kubeconfig is not None:
        server.joins(KubectlNodes(kubeconfig))
    async with serving(server.answer, port=port) as base:
        key = server.credentials(base)
        join = _JOIN.format(join=cloud.join_line, shebang=cloud.shebang) if cloud.has_machines else ""
        print(
            _CLASS.format(name=name, base=base, path=cloud.path, key=key, join=join, namespace=OPERATOR_NAMESPACE),
            flush=True,
        )
        for group, kind, members in cloud.groups:
            server.add_group(group, kind, members)
        if cloud.groups:
            named = ", ".join(each[0] for each in cloud.groups)
            print(_GROUPS.format(name=name, base=base, groups=named, namespace=OPERATOR_NAMESPACE), flush=True)
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
    parser.add_argument("--kubeconfig", help="of an embedded cluster, whose nodes the machines become; default: none")
    arguments = parser.parse_args()
    try:
        asyncio.run(_serve(arguments.name, arguments.port, arguments.kubeconfig))
    except KeyboardInterrupt:
        print()


if __name__ == "__main__":
    main()
