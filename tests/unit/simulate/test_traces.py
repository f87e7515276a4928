"""Traces of others and of your own, as pods with times."""

import pytest

from forebay.simulate.traces import TraceError, read_trace


def read(text):
    return read_trace(text.splitlines(keepends=True))


def summary(trace):
    return [
        (each.submitted, each.duration, int(each.pod.shape.gpus()), each.pod.namespace, each.pod.name)
        for each in trace.pods
    ]


def test_a_table_of_your_own_needs_three_columns():
    trace = read("submitted,duration,gpus\n100,60,2\n40,5.9,1\n")
    assert summary(trace) == [(0, 5, 1, "default", "job-0"), (60, 60, 2, "default", "job-1")]


def test_times_may_be_times_and_amounts_are_quantities():
    trace = read(
        "submitted,duration,gpus,cpu,memory,namespace,name\n"
        "2026-01-31T12:00:00Z,60,1,500m,2Gi,team-a,train\n"
        "2026-01-31T13:00:30+01:00,60,1,2,1G,team-b,eval\n"
    )
    assert summary(trace) == [(0, 60, 1, "team-a", "train"), (30, 60, 1, "team-b", "eval")]
    assert [dict(each.pod.shape.requests.items())["cpu"] for each in trace.pods] == [500, 2000]
    assert [dict(each.pod.shape.requests.items())["memory"] for each in trace.pods] == [2 * 2**30, 10**9]


def test_a_time_may_have_a_blank_between_date_and_clock_as_spreadsheets_write_it():
    trace = read("submitted,duration,gpus\n2026-01-31 12:00:00,60,1\n2026-01-31 12:00:05,60,1\n")
    assert [each.submitted for each in trace.pods] == [0, 5]


def test_a_number_too_small_to_matter_is_zero():
    assert summary(read("submitted,duration,gpus\n1e-999999999,60,1\n")) == [(0, 60, 1, "default", "job-0")]


def test_a_share_of_a_gpu_counts_as_a_whole_one():
    trace = read("submitted,duration,gpus\n0,60,0.5\n1,60,2.25\n")
    assert [int(each.pod.shape.gpus()) for each in trace.pods] == [1, 3]


def test_openb_pods_run_from_when_they_were_scheduled_and_those_that_never_were_are_skipped():
    trace = read(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
        "a,12000,16384,1,460,,LS,Running,1000,1100,1010\n"
        "b,1000,1024,0,0,,LS,Running,1000,1100,1010\n"
        "c,1000,1024,1,1000,,LS,Pending,1000,,\n"
    )
    assert summary(trace) == [(0, 90, 1, "default", "a")]
    assert trace.skipped == 2


def test_a_philly_job_of_more_gpus_than_a_machine_has_is_several_pods():
    trace = read("submit_s,timestamp,duration_s,num_gpus,gpu_time_s,vc\n0,x,100,20,2000,7f04ca\n")
    assert summary(trace) == [
        (0, 100, 8, "7f04ca", "job-0-0"),
        (0, 100, 8, "7f04ca", "job-0-1"),
        (0, 100, 4, "7f04ca", "job-0-2"),
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "none of the known sets of columns"),
        ("a,b\n1,2\n", "none of the known sets of columns"),
        ("submitted,duration,gpus\nsoon,1,1\n", 'line 2: submitted is "soon"'),
        ("submitted,duration,gpus\n0,1/0,1\n", "line 2: duration"),
        ("submitted,duration,gpus\n0,1e99,1\n", "out of range"),
        ("submitted,duration,gpus\n0,-5,1\n", "line 2: duration is -5, which is negative"),
        ("submitted,duration,gpus\n0,5,-1\n", "line 2: gpus is -1, which is negative"),
        ("submitted,duration,gpus\n2026-13-45T00:00:00Z,1,1\n", "is no time"),
        ("submitted,duration,gpus,cpu\n0,1,1,much\n", "line 2: cpu"),
        ('submitted,duration,gpus\n0,"1\n', "is not CSV"),
        ("submitted;duration;gpus\n0;1;1\n", "Its first line has: submitted;duration;gpus"),
        ("submitted,duration,gpus\n0,1,nan\n", 'line 2: gpus is "nan", which is no number'),
        ("submitted,duration,gpus\n0,1e400000000,1\n", "line 2: duration is 1e400000000, which is out of range"),
        ("submitted,duration,gpus\n0,1,99999999\n", "line 2: gpus is 99999999, more than 100,000"),
        ("submitted,duration,gpus\n0,400000000,1\n", "line 2: the pod runs for more than ten years"),
        ("submitted,duration,gpus\n0,1,1\n1000000000000000,1,1\n", "Are all times in one unit?"),
        ("submitted,duration,gpus,cpu\n0,1,1,-1\n", "line 2: cpu is -1, which is negative"),
        (
            "submitted,duration,gpus\n0,1,1\n2026-01-31T12:00:00Z,1,1\n",
            "line 3: submitted is a date, and in line 2 a number of seconds",
        ),
        (
            "creation_time,deletion_time,scheduled_time,num_gpu,cpu_milli,memory_mib\n0,9,abc,1,1,1\n",
            'line 2: scheduled_time is "abc", which is no number',
        ),
        (
            "creation_time,deletion_time,num_gpu,cpu_milli,memory_mib\n0,9,1,1,1\n",
            "none of the known sets of columns",
        ),
    ],
)
def test_a_bad_table_is_refused_with_its_line(text, sentence):
    with pytest.raises(TraceError, match=r".") as refused:
        read(text)
    assert sentence in str(refused.value)
