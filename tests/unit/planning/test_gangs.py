from datetime import timedelta

from forebay.model.reasons import Reason
from forebay.model.requirements import LabelSelector
from forebay.model.workloads import PodAffinityTerm
from forebay.planning.gangs import Gang, GangKey
from forebay.planning.plan import Cap, Preferences
from forebay.planning.planner import plan
from tests.unit.planning.worlds import POOL, bought, candidate, pod, pods, served, shape, why

GROUP = {"forebay.dev/pod-group": "train"}


def test_a_group_is_served_as_a_whole():
    made = plan(pods(4, annotations=GROUP), [candidate(1, "1", name="one", stock=4)])

    assert bought(made) == ["one"] * 4
    assert not made.left_out


def test_a_group_that_cannot_be_whole_takes_nothing_from_others():
    group, others = pods(4, annotations=GROUP, age=timedelta(hours=1)), pods(2)

    made = plan([*group, *others], [candidate(1, "1", stock=3)])

    assert served(made) == {each.name for each in others}
    assert set(why(made).values()) == {Reason.GANG_INCOMPLETE}
    assert "served as a whole or not at all" in made.left_out[0].sentence


def test_the_sentence_of_a_group_names_the_limit_that_holds_it_back_though_others_left_room():
    limit = Cap(name="limits.maxNodes of GPUNodePool team/pool", pools=frozenset({POOL}), nodes=3)

    made = plan([*pods(4, annotations=GROUP), *pods(1)], [candidate(1, "1")], [limit])

    assert len(served(made)) == 1
    assert "there is capacity for 3 of its 4 pods; 1 more must fit" in made.left_out[0].sentence
    assert "limits.maxNodes of GPUNodePool team/pool leaves no room for it" in made.left_out[0].sentence
    assert "1 node more serves 1 of these pods" in made.left_out[0].sentence


def test_the_sentence_of_a_group_names_the_pod_that_fits_nowhere():
    small, large = pods(3, annotations=GROUP), pod(shape(64), name="large", annotations=GROUP)

    made = plan([*small, large], [candidate(4, "3")])

    sentences = {each.pod.name: each.sentence for each in made.left_out}
    assert not made.purchases
    assert "3 of its 4 pods; 1 more must fit. Of large: None of 1 offers fits" in sentences[small[0].name]
    assert "The pod requests 64 nvidia.com/gpu (largest offer: 4)" in sentences["large"]


def test_a_gang_that_must_share_a_zone_goes_where_some_of_it_runs_or_waits_for_offers_there():
    gang = {**GROUP, "forebay.dev/together": "zone"}
    known = {GangKey("team", "train"): Gang(placed=2, nodes=({"topology.kubernetes.io/zone": "b"}, {"arch": "amd64"}))}
    near, far = candidate(1, "3", name="near", zone="b"), candidate(1, "1", name="far", zone="a")

    assert bought(plan(pods(2, annotations=gang), [near, far])) == ["far", "far"]
    assert bought(plan(pods(2, annotations=gang), [near, far], gangs=known)) == ["near", "near"]
    waits = plan(pods(2, annotations=gang), [far], gangs=known)
    assert not waits.purchases
    assert "All pods of the gang team/train must share one topology.kubernetes.io/zone" in waits.left_out[0].sentence
    assert "those that have a node are in b, and no offer is there" in waits.left_out[0].sentence


def test_of_two_groups_that_do_not_both_fit_the_older_is_served():
    old = pods(2, annotations={"forebay.dev/pod-group": "old"}, age=timedelta(hours=1))
    new = pods(2, annotations={"forebay.dev/pod-group": "new"})

    assert served(plan([*new, *old], [candidate(1, "1", stock=3)])) == {each.name for each in old}


def test_a_group_with_a_least_size_may_be_served_in_part():
    least = {**GROUP, "forebay.dev/pod-group-min-count": "2"}

    assert len(served(plan(pods(4, annotations=least), [candidate(1, "1", stock=3)]))) == 3
    assert not served(plan(pods(4, annotations=least), [candidate(1, "1", stock=1)]))


def test_a_group_whose_pods_do_not_all_exist_yet_waits_for_them():
    made = plan(pods(2, annotations=GROUP), [candidate(1)], gangs={GangKey("team", "train"): Gang(min_count=3)})

    assert set(why(made).values()) == {Reason.GANG_INCOMPLETE}
    assert "needs 3 pods and 2 wait for capacity" in made.left_out[0].sentence
    placed = Gang(min_count=3, placed=1)
    assert len(served(plan(pods(2, annotations=GROUP), [candidate(1)], gangs={GangKey("team", "train"): placed}))) == 2


def test_the_pods_of_a_job_are_a_group_on_request():
    job = [pod(annotations={"forebay.dev/gang": "true"}, owner="job") for _ in range(3)]
    loose = [pod(annotations={"forebay.dev/gang": "false"}, owner="loose") for _ in range(3)]

    assert not served(plan(job, [candidate(1, "1", stock=2)]))
    assert len(served(plan(loose, [candidate(1, "1", stock=2)]))) == 2


def test_pods_without_a_controller_are_no_group_whatever_they_are_annotated_with():
    bare = pods(2, annotations={"forebay.dev/gang": "true"})

    assert len(served(plan(bare, [candidate(1, "1", stock=1)]))) == 1


def test_the_label_of_the_schedulers_own_plugin_makes_a_group():
    group = pods(3, labels={"scheduling.x-k8s.io/pod-group": "train"})

    assert not served(plan(group, [candidate(1, "1", stock=2)]))


def test_a_group_stays_in_one_zone_on_request():
    together = {**GROUP, "forebay.dev/together": "zone"}
    offers = [
        candidate(1, "1", name="cheap", zone="a", stock=3),
        candidate(1, "1.1", name="same", zone="b"),
        candidate(1, "1", name="no-zone"),
    ]

    assert bought(plan(pods(4, annotations=together), offers)) == ["same"] * 4
    assert bought(plan(pods(3, annotations=together), offers)) == ["cheap"] * 3
    assert bought(plan(pods(4, annotations=GROUP), offers)) == ["cheap"] * 3 + ["no-zone"]


def test_a_group_stays_with_one_provider_on_request():
    together = {**GROUP, "forebay.dev/together": "provider"}
    offers = [candidate(1, "1", provider="few", stock=1, name="few"), candidate(1, "2", provider="many", name="many")]

    assert bought(plan(pods(2, annotations=together), offers)) == ["many", "many"]


def test_a_gang_with_a_member_that_is_refused_gets_nothing():
    zone = "topology.kubernetes.io/zone"
    nearby = shape(pod_affinity=(PodAffinityTerm("kubernetes.io/hostname", LabelSelector({"app": "a"})),))
    gang = [*pods(1, annotations=GROUP), *pods(3, nearby, annotations=GROUP)]

    made = plan(gang, [candidate(1, "1", labels={zone: "a"})])

    assert not made.purchases
    assert set(why(made).values()) == {Reason.GANG_INCOMPLETE, Reason.AFFINITY_NOT_PLANNED}


def test_one_pod_that_asks_for_one_zone_asks_for_the_whole_gang():
    together = {**GROUP, "forebay.dev/together": "zone"}
    offers = [candidate(1, "1", zone=zone, name=f"in-{zone}", stock=1) for zone in "ab"]

    assert not plan([*pods(1, annotations=together), *pods(1, annotations=GROUP)], offers).purchases


def test_half_of_many_gangs_are_served_when_there_is_stock_for_half():
    gangs = [
        each
        for number in range(256)
        for each in pods(4, annotations={"forebay.dev/pod-group": f"g{number:03}"}, age=timedelta(minutes=number))
    ]

    made = plan(gangs, [candidate(4, "4", stock=128)], (), Preferences(refine=False), clock=lambda: 0.0)

    assert len(made.purchases) == 128
    oldest = {each.name for each in gangs if each.annotations["forebay.dev/pod-group"] >= "g128"}
    assert served(made) == oldest


def test_of_gangs_that_do_not_all_fit_the_older_waits_where_the_younger_has_more_pods_on_the_same_node():
    old = pods(2, shape(4), annotations={"forebay.dev/pod-group": "old"}, age=timedelta(hours=1))
    young = [
        *pods(4, shape(1, cpu="1"), annotations={"forebay.dev/pod-group": "young"}),
        *pods(4, shape(1, cpu="2"), annotations={"forebay.dev/pod-group": "young"}),
    ]

    made = plan([*old, *young], [candidate(8, "8", stock=1)], (), Preferences(refine=False))

    assert served(made) == {each.name for each in young}


def test_what_is_known_of_a_group_besides_its_size_does_not_hide_the_size_that_its_pods_name():
    least = {**GROUP, "forebay.dev/pod-group-min-count": "2"}

    made = plan(
        pods(4, annotations=least), [candidate(1, "1", stock=3)], gangs={GangKey("team", "train"): Gang(others=1)}
    )

    assert len(served(made)) == 3


def test_the_only_pod_so_far_of_a_group_waits_for_the_others():
    key = GangKey("team", "train")

    alone = plan(pods(1, annotations=GROUP), [candidate(1)], gangs={key: Gang(min_count=3)})
    last = plan(pods(1, annotations=GROUP), [candidate(1)], gangs={key: Gang(min_count=3, placed=2)})

    assert set(why(alone).values()) == {Reason.GANG_INCOMPLETE}
    assert not alone.purchases
    assert len(served(last)) == 1
