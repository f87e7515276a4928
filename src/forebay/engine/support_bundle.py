"""Support bundles: saved snapshots without secrets, packed for whoever helps."""

import io
import os
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from forebay.net.redaction import HIDDEN, Redactor
from forebay.reconcile.saved_snapshot import save_snapshot
from forebay.reconcile.snapshot import Snapshot

SNAPSHOT_FILE: Final = "snapshot.json"
_FOLDER: Final = "forebay-support"
#: Start of the names of dumps, and how many of them are kept.
_DUMP: Final = "forebay-snapshot-"
_MOST_DUMPS: Final = 3
#: Text that users write and a plan does not need, by its field: templates of classes.
_HIDDEN_TEXTS: Final = frozenset({"machineConfigTemplate", "template"})
#: Fields of containers that may hold secrets of users.
_HIDDEN_PARTS: Final = frozenset({"env", "args", "command"})
#: Annotations that ticks read begin with one of these.
_KEPT_ANNOTATIONS: Final = ("forebay.dev/", "runpod.io/", "budget.zxuhan.dev/", "tgp.io/")


def redacted_snapshot(snapshot: Snapshot, redactor: Redactor) -> bytes:
    """The snapshot as a file, without what may be secret. It still loads, and plans the same."""
    return msgspec.json.encode(_redacted(msgspec.json.decode(save_snapshot(snapshot)), redactor, ""))


def _redacted(value: Any, redactor: Redactor, field: str) -> Any:
    if isinstance(value, str):
        return HIDDEN if field in _HIDDEN_TEXTS and value else redactor.text(value)
    if isinstance(value, list):
        return [HIDDEN if field in _HIDDEN_PARTS else _redacted(item, redactor, field) for item in value]
    if isinstance(value, dict):
        if field == "env":
            return dict.fromkeys(value, HIDDEN)
        if field == "annotations":
            return {
                key: _redacted(item, redactor, key) if key.startswith(_KEPT_ANNOTATIONS) else HIDDEN
                for key, item in value.items()
            }
        return {key: _redacted(item, redactor, key) for key, item in value.items()}
    return value


def packed(files: Mapping[str, bytes]) -> bytes:
    """A compressed tar file of these files."""
    bundle = io.BytesIO()
    with tarfile.open(fileobj=bundle, mode="w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(f"{_FOLDER}/{name}")
            member.size, member.mode = len(data), 0o600
            tar.addfile(member, io.BytesIO(data))
    return bundle.getvalue()


def dump(snapshot: Snapshot, redactor: Redactor) -> Path:
    """Writes a bundle with the snapshot alone to the directory of temporary files, where only its owner can read it.

    Only the last few are kept: in a pod that directory is small, and the kubelet evicts who fills it.
    """
    data = packed({SNAPSHOT_FILE: redacted_snapshot(snapshot, redactor)})
    directory = Path(tempfile.gettempdir())
    own = [each for each in directory.glob(f"{_DUMP}*.tar.gz") if each.lstat().st_uid == os.getuid()]
    for old in sorted(own, key=lambda each: each.lstat().st_mtime_ns)[: -(_MOST_DUMPS - 1)]:
        old.unlink(missing_ok=True)
    prefix = f"{_DUMP}{snapshot.now:%Y%m%dT%H%M%S}-"
    descriptor, name = tempfile.mkstemp(prefix=prefix, suffix=".tar.gz", dir=directory)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    return Path(name)
