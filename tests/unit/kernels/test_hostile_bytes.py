"""Hostile bytes never make a kernel touch memory outside its buffers."""

import signal

import pytest

from tests.support.guarded_memory import OVERRUNS, SUBJECTS, guarded


def run_guarded(*names):
    return guarded(20, *names)


def test_kernels_stay_in_their_buffers_whatever_the_bytes():
    done = run_guarded(*SUBJECTS)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = dict(line.split()[:2] for line in done.stdout.splitlines())
    assert [subject for subject in SUBJECTS if int(counts[subject]) <= 300] == []


@pytest.mark.parametrize("subject", OVERRUNS)
def test_one_byte_out_of_a_guarded_buffer_kills_the_process(subject):
    assert run_guarded(subject).returncode == -signal.SIGSEGV
