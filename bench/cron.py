"""Cron schedules: our parser and cronsim against the parser of Kubernetes' CronJobs (robfig/cron, built with Go).

Each generated schedule is asked at which of 620 moments it starts something: five times of the day on 124 days in a
row. A schedule that is refused has no answer. Differences to robfig are counted by what is written in the day fields,
with an example of each. Fails when our parser gives another answer than robfig to a schedule that both accept.
Without Go only cronsim and our parser are compared.
"""

import random
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

SCHEDULES = 800
SEED = 20260302
FIRST = datetime(2028, 1, 20, tzinfo=UTC)  # a leap day is among the days
MOMENTS = [
    FIRST + timedelta(days=day, hours=hour, minutes=minute)
    for day in range(124)
    for hour, minute in ((0, 0), (0, 5), (9, 0), (12, 30), (23, 59))
]
ROBFIG = """package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

func main() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	in.Scan()
	var moments []time.Time
	for _, word := range strings.Fields(in.Text()) {
		seconds, _ := strconv.ParseInt(word, 10, 64)
		moments = append(moments, time.Unix(seconds, 0).UTC())
	}
	for in.Scan() {
		schedule, err := cron.ParseStandard(in.Text())
		if err != nil {
			fmt.Println("refused")
			continue
		}
		for _, moment := range moments {
			if schedule.Next(moment.Add(-time.Second)).Equal(moment) {
				fmt.Print("1")
			} else {
				fmt.Print("0")
			}
		}
		fmt.Println()
	}
}
"""
MODULE = "module robfig\n\ngo 1.21\n\nrequire github.com/robfig/cron/v3 v3.0.1\n"
SUMS = """github.com/robfig/cron/v3 v3.0.1 h1:WdRxkvbJztn8LMz/QEvLN5sBU+xKpSqwwUO1Pjr4qDs=
github.com/robfig/cron/v3 v3.0.1/go.mod h1:eQICP3HwyT7UooqI/z+Ov+PtYAWygg1TEWWzGIFLtro=
"""
REFUSED = "refused"


def generated() -> list[str]:
    """Schedules as people write them: mostly restricted days, in every notation that crontab(5) or robfig knows."""
    chance = random.Random(SEED)
    words = ["@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually", "@reboot", "@every 1h"]
    days = ["*", "*", "?", "*/2", "*/10", "1", "15", "1,15", "31", "10-20", "5/7", "1-31/3", "*/1", "L", "LW", "32"]
    months = ["*", "*", "*", "feb", "Mar-Jun", "*/3", "2/4", "1,7", "13"]
    weekdays = ["*", "*", "?", "*/2", "*/3", "0", "7", "Mon-Fri", "sun", "5-7", "5/2", "1/3", "6,0", "MON#1", "5L"]
    minutes, hours = ["0", "0", "*/5", "5/25", "59", "0-30/10", "60"], ["*", "0", "9", "9-17", "*/12", "0,23", "24"]
    found = [
        " ".join(chance.choice(field) for field in (minutes, hours, days, months, weekdays)) for _ in range(SCHEDULES)
    ]
    return [*words, "0 0 0 * * *", "0 0 * *", "0 0 1, * *", *dict.fromkeys(found)]


def ours(schedule: str) -> str:
    from forebay.disruption.cron import InvalidSchedule, parse_schedule

    try:
        parsed = parse_schedule(schedule)
    except InvalidSchedule:
        return REFUSED
    return _bits(lambda moment: parsed.latest(moment, timedelta(0)) == moment)


def cronsim(schedule: str) -> str:
    from cronsim import CronSim, CronSimError

    try:
        CronSim(schedule, FIRST)
    except CronSimError:
        return REFUSED
    return _bits(lambda moment: next(CronSim(schedule, moment - timedelta(seconds=1)), None) == moment)


def _bits(starts: Callable[[datetime], bool]) -> str:
    return "".join("01"[starts(moment)] for moment in MOMENTS)


def robfig(schedules: Sequence[str]) -> list[str] | None:
    if shutil.which("go") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("main.go", ROBFIG), ("go.mod", MODULE), ("go.sum", SUMS)):
            (Path(folder) / name).write_text(text)
        asked = "\n".join([" ".join(str(int(moment.timestamp())) for moment in MOMENTS), *schedules])
        done = subprocess.run(["go", "run", "."], cwd=folder, input=asked, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(done.stderr)
        return None
    return done.stdout.split()


def compare(name: str, answers: Sequence[str], right: Sequence[str], schedules: Sequence[str], against: str) -> int:
    """Print the differences by kind; how many schedules both accept and read differently."""
    kinds: defaultdict[str, list[str]] = defaultdict(list)
    for schedule, answer, wanted in zip(schedules, answers, right, strict=True):
        if answer != wanted:
            kind = "refused" if answer == REFUSED else "accepted" if wanted == REFUSED else "read differently"
            kinds[kind].append(schedule)
    print(f"{name}: {len(schedules)} schedules, {sum(map(len, kinds.values()))} answered otherwise than by {against}")
    for kind, found in kinds.items():
        print(f"  {len(found):5} {kind}, such as {' | '.join(sorted(found, key=lambda each: (len(each), each))[:12])}")
    return len(kinds["read differently"])


def main() -> int:
    schedules = generated()
    mine, theirs, right = [ours(each) for each in schedules], [cronsim(each) for each in schedules], robfig(schedules)
    if right is None:
        print("No Go, or no module robfig/cron: our parser is the measure.")
        compare("cronsim", theirs, mine, schedules, "our parser")
        return 0
    compare("cronsim", theirs, right, schedules, "robfig")
    return 1 if compare("forebay", mine, right, schedules, "robfig") else 0


if __name__ == "__main__":
    sys.exit(main())
