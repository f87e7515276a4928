"""Pods made short before they are decoded are the same pods."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.kube import abridging
from forebay.kube.pods import PodDecoder, _PodOnWire
from forebay.kube.wire import Undecodable, Wire

BOOKMARK = {"metadata": {"resourceVersion": "9", "creationTimestamp": "2030-01-01T12:00:00Z", "name": "", "uid": ""}}
BOOKMARK |= {"spec": {}, "status": {}}
UID = "0f0f0f0f-1111-4222-8333-000000000000"
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": UID, "controller": True}


def pod(name="p", letters="abcde", node="n1", *, gpus=0, cpu="1", metadata=None, spec=None, status=None) -> dict:
    """As an API server writes it. What is given as None in `metadata`, `spec` or `status` is left out."""
    requests = {"cpu": cpu, **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    volume = f"kube-api-access-{letters}"
    started = {"state": {"running": {"startedAt": "2030-01-01T12:00:30Z"}}, "lastState": {}, "ready": True}
    whole = {
        "metadata": {
            "name": name,
            "generateName": "web-1-",
            "namespace": "team",
            "uid": f"uid-of-{name}",
            "resourceVersion": "17",
            "creationTimestamp": "2030-01-01T12:00:00Z",
            "deletionTimestamp": None,
            "labels": {"app": "web", "pod-template-hash": "1"},
            "annotations": {"forebay.dev/x": "y", "checksum/config": "0" * 64},
            "ownerReferences": [OWNER],
            "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {'k:{"type":"Ready"}': {}}}}],
        }
        | (metadata or {}),
        "spec": {
            "volumes": [{"name": volume, "projected": {}}],
            "containers": [
                {"name": "c", "resources": {"requests": requests}, "volumeMounts": [{"name": volume}]},
                {"name": "d", "resources": {}, "volumeMounts": [{"name": volume}]},
            ],
            "nodeSelector": None,
            "nodeName": node,
            "schedulerName": "default-scheduler",
            "priority": 5,
        }
        | (spec or {}),
        "status": {
            "phase": "Running",
            "conditions": [{"type": "PodScheduled", "status": "True"}],
            "nominatedNodeName": None,
            "containerStatuses": [started],
        }
        | (status or {}),
    }
    return {part: {key: value for key, value in of.items() if value is not None} for part, of in whole.items()}


def line(body: dict, kind: str = "ADDED") -> bytes:
    event = {"type": kind, "object": {"kind": "Pod", "apiVersion": "v1", **body}}
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


class Readers:
    """Two that should agree."""

    def __init__(self) -> None:
        pods = PodDecoder(timed=())
        self.pods = pods
        self.short = Wire(_PodOnWire, pods.build, abridge=pods.abridge)
        self.plain = Wire(_PodOnWire, PodDecoder(timed=()).build)

    def length(self, text: bytes) -> int:
        return sum(map(len, self.pods.abridge(text, 0, len(text))))

    def read(self, text: bytes) -> list:
        batch = [(text, 0, len(text))]
        found = list(self.short.events(batch))
        assert found == list(self.plain.events(batch))
        return [each for some in found for each in some]


def test_the_third_pod_of_an_owner_is_read_by_its_differences_alone():
    readers = Readers()
    first, second, third = (
        line(pod(name, letters, node))
        for name, letters, node in [("a", "aaaaa", "n1"), ("b", "x2x4z", "n2"), ("c", "ccccc", "node-3")]
    )
    readers.read(first + second)
    assert readers.length(third) < len(third) / 2
    [read] = readers.read(third)
    assert (read.name, read.node, read.labels["app"], read.owner.uid) == ("c", "node-3", "web", UID)
    assert read.annotations == {"forebay.dev/x": "y"}
    assert read.shape.requests["cpu"] == 1000


def test_without_its_managed_fields_a_pod_is_the_same():
    readers = Readers()
    text = line(pod())
    assert readers.length(text) < len(text)
    assert readers.read(text)[0].name == "p"


def test_of_a_pod_with_gpus_the_times_are_read_and_of_a_pending_one_the_reason():
    readers = Readers()
    readers.read(line(pod("a", gpus=2)) + line(pod("b", gpus=2)))
    [running] = readers.read(line(pod("c", gpus=2)))
    assert running.started is not None
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    waiting = {"phase": "Pending", "conditions": [refused], "nominatedNodeName": "n9"}
    [pending] = readers.read(line(pod("d", gpus=2, spec={"nodeName": None}, status=waiting)))
    assert pending.unschedulable_message == "no room"
    assert pending.nominated_node == "n9"


def test_one_that_asks_to_end_and_one_that_has_ended_are_seen():
    readers = Readers()
    readers.read(line(pod("a")) + line(pod("b")))
    [leaving] = readers.read(line(pod("c", metadata={"deletionTimestamp": "2030-01-01T13:00:00Z"})))
    assert leaving.deleted is not None
    [ended] = readers.read(line(pod("d", status={"phase": "Succeeded"})))
    assert ended.phase.ended


@pytest.mark.parametrize(
    "changes",
    [
        {"spec": {"priority": 6}},
        {"spec": {"containers": []}},
        {"cpu": "2"},
        {"gpus": 1},
        {"metadata": {"labels": {"app": "cobweb", "pod-template-hash": "1"}}},
        {"metadata": {"labels": {"app": "wed", "pod-template-hash": "1"}}},
        {"metadata": {"annotations": {"forebay.dev/x": "z", "checksum/config": "0" * 64}}},
        {"metadata": {"ownerReferences": None}},
        {"letters": 'a"}, '},
    ],
)
def test_pods_that_differ_in_what_matters_are_not_taken_for_alike(changes):
    readers = Readers()
    readers.read(line(pod("a")) + line(pod("b")) + line(pod("c")))
    [found] = readers.read(line(pod("d", **changes)))
    assert found.name == "d"


def test_an_owner_whose_first_pods_were_no_example_gets_another_chance():
    readers = Readers()
    readers.read(b"".join(line(pod(f"waiting-{number}", spec={"nodeName": None})) for number in range(3)))
    readers.read(line(pod("a")))
    assert readers.length(line(pod("b"))) < len(line(pod("b"))) / 2


def test_a_name_of_a_volume_that_is_more_than_that_is_not_left_out():
    readers = Readers()
    for letters in ("aaaaa", "bbbbb", "ccccc"):
        selector = {"nodeSelector": {"only": f"kube-api-access-{letters}"}}
        [found] = readers.read(line(pod(letters, letters, spec=selector)))
        assert found.shape.node_selector["only"].endswith(letters)


@pytest.mark.parametrize(
    "broken",
    [
        line(pod("b"))[:-30] + b"\n",
        line(pod("b", "lette")).replace(b"lette", b'l"t"e'),
        line(pod("b")).replace(b"]},", b"]", 1),
        line(pod("b")).replace(b'"managedFields":[', b'"managedFields":[[', 1),
        line(pod("b")).replace(b'"resourceVersion":"17"', b'"resourceVersion":"x"'),
        line(pod("b", metadata={"resourceVersion": None})),
    ],
)
def test_a_line_that_is_broken_is_found_out_as_it_would_be_anyway(broken):
    readers = Readers()
    readers.read(line(pod("x")) + line(pod("y")) + line(pod("z")))
    outcomes = []
    text = line(pod("a")) + broken + line(pod("c"))
    for wire in (readers.short, readers.plain):
        try:
            outcomes.append([each for some in wire.events([(text, 0, len(text))]) for each in some])
        except Exception as error:  # noqa: BLE001 (whatever it is, it is to be the same)
            outcomes.append([type(error)])
    short, plain = ([each.key if isinstance(each, Undecodable) else each for each in found] for found in outcomes)
    assert short == plain


def test_a_number_that_the_server_makes_up_is_not_believed():
    readers = Readers()
    text = line(pod() | {abridging.LIKE: 7})
    [[found]] = readers.short.events([(text, 0, len(text))])
    assert isinstance(found, Undecodable)


def test_what_is_remembered_is_bounded_and_lines_under_way_are_still_read(monkeypatch):
    monkeypatch.setattr(abridging, "_NUMBERS", 3)
    readers = Readers()
    for number in 2 * [*range(20)]:
        owner = {"ownerReferences": [{**OWNER, "uid": f"uid-{number}"}]}
        first, second, third = (line(pod(name, metadata=owner)) for name in "abc")
        readers.read(first + second)
        text = third * 2 + line(BOOKMARK, "BOOKMARK") + third
        under_way = readers.short.events([(text, 0, len(text))])
        assert len(next(under_way)) == 2
        # Another stream learns of another owner meanwhile.
        other = {"ownerReferences": [{**OWNER, "uid": f"other-{number}"}]}
        assert len(readers.read(b"".join(line(pod(name, metadata=other)) for name in "abc"))) == 3
        assert [len(found) for found in under_way] == [2, 1]


names = st.sampled_from(["a", "b", "b-1", "é", 'qu"ote', "back\\slash", "]},", '"spec":{', "kube-api-access-zzzzz", ""])
letters = st.sampled_from(["abcde", "12345"]) | st.sampled_from(
    ["a", "", "ab]de", 'a"b:c', "kube-api-access-abcde", "toolong"]
)
parts = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries(
            {},
            optional={
                "labels": st.none() | st.dictionaries(names, names, max_size=2),
                "annotations": st.none() | st.dictionaries(st.sampled_from(["forebay.dev/x", "z"]), names, max_size=2),
                "ownerReferences": st.none() | st.just([OWNER]),
                "finalizers": st.none() | st.lists(names, max_size=2),
                "deletionTimestamp": st.none() | st.just("2030-01-01T13:00:00Z"),
                "managedFields": st.none()
                | st.sampled_from([[], [{"f:x": {}}], [{"v:[1]": {"a": []}}], [{"a": {"b": []}, "spec": {"c": []}}]]),
            },
        ),
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "nodeName": st.none() | names,
                "nodeSelector": st.none() | st.dictionaries(names, names, max_size=1),
                "priority": st.integers(0, 1),
                "hostname": names,
                "schedulerName": st.none() | names,
            },
        ),
        "status": st.fixed_dictionaries(
            {},
            optional={
                "phase": st.sampled_from(["Running", "Succeeded", "Odd", ""]) | st.none(),
                "nominatedNodeName": st.none() | names,
                "containerStatuses": st.none() | st.just([]),
            },
        ),
    },
)


@pytest.mark.law
@given(
    gpus=st.integers(0, 1),
    usual=parts,
    pods=st.lists(
        st.tuples(
            names,
            letters,
            st.sampled_from("1112"),
            st.none() | st.none() | parts,
            st.sampled_from(["ADDED", "MODIFIED"]),
        ),
        min_size=2,
        max_size=8,
    ),
)
def test_pods_are_read_as_if_they_had_never_been_made_short(gpus, usual, pods):
    readers = Readers()
    text = b"".join(
        line(pod(name or "p", with_letters, cpu=cpu, gpus=gpus, **(usual if others is None else others)), kind)
        for name, with_letters, cpu, others, kind in pods
    )
    once = readers.read(text)
    assert readers.read(text) == once
    assert len(once) == len(pods)
