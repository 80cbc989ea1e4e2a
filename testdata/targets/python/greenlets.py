"""greenlets: two greenlets compute in turn, started from calls of unequal depth.

one() and two() run for the same CPU time; deep() stands between the main greenlet and the
one that starts them, so that a frame that is told for the wrong C function shows.
"""
import os
import time

from greenlet import getcurrent, greenlet


def crunch():
    end = time.thread_time() + 0.02
    while time.thread_time() < end:
        for i in range(200):
            pass


def one():
    while True:
        crunch()
        turns[1].switch()


def two():
    while True:
        nested(3)
        turns[0].switch()


def nested(n):
    if n:
        nested(n - 1)
    else:
        crunch()


def deep(n):
    if n:
        return deep(n - 1)
    print("ready", os.getpid(), flush=True)
    turns[0].switch()


def starter():
    deep(30)


turns = [greenlet(one), greenlet(two)]
greenlet(starter).switch()
