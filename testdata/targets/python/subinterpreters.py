"""Runs code in subinterpreters: the main thread waits in one, another thread computes in one, and goes
from interpreter to interpreter. Needs 3.11 or later."""

import os
import threading

try:
    import _interpreters as interpreters

    run = interpreters.exec
except ImportError:
    import _xxsubinterpreters as interpreters

    run = interpreters.run_string

WAIT = """
import time
def sub_leaf():
    time.sleep(3600)
def sub_outer():
    sub_leaf()
sub_outer()
"""

WORK = """
import time
def sub_work(until):
    n = 0
    while time.monotonic() < until:
        n += sum(range(100))
    time.sleep(0.001)
def sub_turn():
    sub_work(time.monotonic() + 1)
sub_turn()
"""


def turn():
    i = interpreters.create()
    run(i, WORK)
    interpreters.destroy(i)


def turns():
    while True:
        turn()


def main_outer():
    run(interpreters.create(), WAIT)


threading.Thread(target=turns, name="turns", daemon=True).start()
print("ready", os.getpid(), flush=True)
main_outer()
