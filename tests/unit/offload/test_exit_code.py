"""The exit code of a remote command comes back through its log. The shell here is the machine's own."""

import shlex
import subprocess

import pytest

from forebay.offload.exit_code import ExitReport, is_report, nonce_of, read_report, shell_words, wrapped

NONCE = nonce_of("instance-uid")


def run(*command, until="forebay-exit", **options):
    """Lines that the wrapped command writes until its report, which is the last one. Then it is terminated."""
    words = wrapped(command, NONCE, **options)
    assert tuple(shlex.split(shell_words(words))) == words
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        lines = []
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            if until in line:
                break
        assert process.poll() is None, "the container must not exit, or its provider starts it again"
        process.terminate()
        try:
            process.wait(timeout=10)
        finally:
            process.kill()
    return lines


@pytest.mark.parametrize("code", [0, 1, 42, 255])
def test_the_last_line_of_the_log_reports_the_exit_code(code):
    lines = run("sh", "-c", f"echo working; exit {code}")
    assert lines[0] == "working"
    assert read_report(lines[-1], NONCE) == ExitReport(exit_code=code)


def test_output_without_a_final_newline_does_not_hide_the_report():
    assert read_report(run("printf", "no newline")[-1], NONCE) == ExitReport(exit_code=0)


def test_arguments_reach_the_command_exactly_as_written():
    awkward = ("a b", "it's", '"$HOME"', "`id`", "*", "", "\\n", "-n", "line\nbreak")
    lines = run("sh", "-c", 'for each; do printf "<%s>" "$each"; done', "sh", *awkward)
    assert "\n".join(lines).startswith("".join(f"<{each}>" for each in awkward))


def test_a_command_that_does_not_exist_is_reported_as_a_shell_reports_it():
    assert read_report(run("/no/such/program")[-1], NONCE) == ExitReport(exit_code=127)


def test_directories_are_made_and_the_command_runs_in_its_own(tmp_path):
    scratch, home = tmp_path / "a" / "scratch", tmp_path / "b c"
    lines = run("pwd", working_dir=str(home), directories=(str(scratch),))
    assert lines[0] == str(home)
    assert scratch.is_dir()


def test_a_directory_that_cannot_be_made_is_reported_too(tmp_path):
    (tmp_path / "file").touch()
    lines = run("true", directories=(str(tmp_path / "file" / "below"),))
    assert read_report(lines[-1], NONCE) == ExitReport(exit_code=126)


def test_with_restart_policy_on_failure_a_failed_command_is_reported_and_runs_again():
    lines = run("sh", "-c", "exit 3", until="forebay-restart", restart_policy="OnFailure")
    assert read_report(lines[-1], NONCE) == ExitReport(exit_code=3, restarts=True)


def test_with_restart_policy_on_failure_success_ends_it():
    assert read_report(run("true", restart_policy="OnFailure")[-1], NONCE) == ExitReport(exit_code=0)


@pytest.mark.parametrize(
    "line",
    [
        f"forebay-exit {nonce_of('another')} 0",
        f"forebay-exit {NONCE}",
        f"forebay-exit {NONCE} 0 more",
        f"said: forebay-exit {NONCE} 0",
        f"forebay-exit {NONCE} -1",
    ],
)
def test_what_a_program_writes_itself_is_no_report(line):
    assert read_report(line, NONCE) is None


def test_reports_are_recognised_so_that_users_do_not_see_them():
    assert is_report(f"forebay-exit {NONCE} 0\r\n")
    assert not is_report("forebay-exit 0")


def test_the_next_leader_knows_the_same_nonce():
    assert nonce_of("instance-uid") == NONCE
    assert nonce_of("other-uid") != NONCE
