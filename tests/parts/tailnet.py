"""A real Headscale and a real tailscaled, in a network of their own, and Forebay's side of joining between them.

    unshare -n python -m tests.parts.tailnet HEADSCALE TAILSCALED TAILSCALE FOLDER

Prints what happened, as JSON. Nothing can leave the network namespace.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from datetime import timedelta
from functools import partial
from pathlib import Path

import yaml

from forebay.bootstrap.tailscale import AUTH_KEY, flags
from forebay.join.tailnets.base import TailnetClient
from forebay.join.tailnets.headscale import HeadscaleTailnet
from forebay.join.tailscale_credentials import TailscaleDevices, TailscaleKeys
from forebay.model.secret_text import SecretText
from forebay.net import clock
from forebay.net.aiohttp_transport import AiohttpTransport
from forebay.net.redaction import Redactor
from tests.joining import TAILSCALE, joining_record, spec_of

URL = "http://127.0.0.1:18080"
READY_WITHIN = 20.0


def network():
    for command in (
        "ip link set lo up",
        "ip link add br0 type bridge",
        # tailscaled waits for a network that is not the loopback.
        "ip addr add 10.99.0.1/24 dev br0",
        "ip link set br0 up",
    ):
        subprocess.run(command.split(), check=True)


def headscale_config(folder):
    derp = {"regions": {900: {"regionid": 900, "regioncode": "none", "regionname": "none", "nodes": []}}}
    (folder / "derp.yaml").write_text(yaml.safe_dump(derp))
    document = {
        "server_url": URL,
        "listen_addr": "127.0.0.1:18080",
        "metrics_listen_addr": "127.0.0.1:18090",
        "grpc_listen_addr": "127.0.0.1:18443",
        "grpc_allow_insecure": True,
        "noise": {"private_key_path": f"{folder}/noise.key"},
        "prefixes": {"v4": "100.64.0.0/10", "v6": "fd7a:115c:a1e0::/48"},
        "derp": {
            "server": {"enabled": False},
            "urls": [],
            "paths": [f"{folder}/derp.yaml"],
            "auto_update_enabled": False,
        },
        "disable_check_updates": True,
        "node": {"ephemeral": {"inactivity_timeout": "66s"}},
        "database": {"type": "sqlite", "sqlite": {"path": f"{folder}/db.sqlite"}},
        "dns": {"magic_dns": False, "override_local_dns": False, "base_domain": "tail.example"},
        "logtail": {"enabled": False},
        "unix_socket": f"{folder}/headscale.sock",
        "policy": {"mode": "database"},
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def started(command, log):
    return subprocess.Popen(command, stdout=log.open("w"), stderr=subprocess.STDOUT)


async def said(*command):
    """Exit code and output."""
    run = partial(subprocess.run, capture_output=True, text=True, check=False)
    done = await asyncio.to_thread(run, command)
    return done.returncode, done.stdout


class Machine:
    """A machine with tailscaled, which enters the network as a boot script would."""

    def __init__(self, folder, daemon, command):
        self._command = [command, f"--socket={folder}/tailscaled.sock"]
        environment = {**os.environ, "TS_DISABLE_PORTMAPPER": "true", "TS_NO_LOGS_NO_SUPPORT": "true"}
        folder.mkdir()
        self.process = subprocess.Popen(
            [
                daemon,
                "--tun=userspace-networking",
                f"--statedir={folder}",
                f"--socket={folder}/tailscaled.sock",
                "--port=0",
                "--no-logs-no-support",
            ],
            env=environment,
            stdout=(folder / "log").open("w"),
            stderr=subprocess.STDOUT,
        )

    def enter(self, config, key, hostname):
        """What `tailscale up` says with this key; "" for success."""
        command = [*self._command, "up", f"--auth-key={key}", f"--hostname={hostname}", *flags(config), "--timeout=30s"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        return "" if done.returncode == 0 else (done.stdout + done.stderr).strip()

    def stop(self):
        self.process.terminate()
        self.process.wait(15)


async def story(headscale, daemon, command, folder):
    config_file = headscale_config(folder)
    server = started([headscale, "-c", str(config_file), "serve"], folder / "headscale.log")
    machines = []
    transport = AiohttpTransport()
    try:
        run = [headscale, "-c", str(config_file)]
        deadline = time.monotonic() + READY_WITHIN
        while (await said(*run, "users", "create", "forebay"))[0]:
            if time.monotonic() > deadline:
                raise TimeoutError((folder / "headscale.log").read_text()[-2000:])
            await asyncio.sleep(0.2)
        _, made = await said(*run, "apikeys", "create", "-e", "24h")
        client = TailnetClient(id="forebay", secret=SecretText(made.strip().splitlines()[-1]))
        tailscale = {**TAILSCALE, "controlURL": URL, "tags": ["tag:gpu"]}
        config = spec_of(tailscaleConfig=tailscale).tailscale_config
        tailnet = HeadscaleTailnet(transport, Redactor(), clock.now, url=URL)

        async def read():
            return client

        keys, devices = TailscaleKeys(tailnet, config, read), TailscaleDevices(tailnet, config, read)
        record = joining_record()
        planned, device = keys.planned(record, 1), devices.planned(record, 1)
        key = await keys.make(record, planned)
        lost = keys.planned(record, 2)
        await keys.make(record, lost)
        machines += [Machine(folder / name, daemon, command) for name in ("first", "second")]
        await asyncio.sleep(1)
        told = {"entered": machines[0].enter(config, key.values[AUTH_KEY], "gpu-1")}
        told["again"] = machines[1].enter(config, key.values[AUTH_KEY], "gpu-1")
        tied = await devices.found(device)
        found = [each for each in await tailnet.devices(client) if each.id == tied.id]
        told["device"] = {"hostname": found[0].hostname, "tags": list(found[0].tags)} if found else None
        # As after a lost answer: by its name alone.
        told["named"] = len(await tailnet.keys_named(client, lost.name))
        for each in (lost, key.resource, key.resource):
            await keys.revoke(each)
        told["keys left"] = [len(await tailnet.keys_named(client, each.name)) for each in (planned, lost)]
        short = await tailnet.create_key(
            client, "forebay-short", ["tag:gpu"], ephemeral=True, ttl=timedelta(seconds=-1)
        )
        told["expired"] = machines[1].enter(config, short.secret.reveal(), "gpu-2")
        machines[0].stop()
        for _ in range(2):
            await devices.revoke(tied)
        told["devices left"] = [each.hostname for each in await tailnet.devices(client)]
        return told
    finally:
        for each in machines:
            each.process.kill()
        await transport.close()
        server.terminate()
        server.wait(15)


if __name__ == "__main__":
    network()
    outcome = asyncio.run(story(*sys.argv[1:4], Path(sys.argv[4])))
    sys.stdout.write(json.dumps(outcome))
