"""Threads that park in all kinds of places, each below Python and C functions.

They print their stacks with faulthandler, then "parked"; the program
ends with its standard input.
"""
import faulthandler
import functools
import json
import re
import sqlite3
import sys
import threading

# No timeouts: a parked thread must not run.
gate = threading.Lock()
gate.acquire()
arrived = threading.Semaphore(0)


def park():
    arrived.release()
    gate.acquire()
    gate.release()


def recursion(n):
    if n:
        return recursion(n - 1)
    park()


def numbers():
    yield 1
    park()
    yield 2


def outer():
    yield from numbers()


def generator():
    return [x
            for x in outer()]


def callback(*args):
    park()
    return "x"


class Odd:
    def __init__(self):
        self.x = 1

    def __lt__(self, other):
        park()
        return True

    @property
    def value(self):
        return functools.reduce(
            lambda a, b: callback(a, b),
            [1, 2])

    def __repr__(self):
        park()
        return "Odd"


def sorting():
    sorted([Odd(), Odd()])


def encoding():
    json.dumps(
        {"a": [Odd()]},
        default=callback)


def matching():
    re.sub("a+", callback, "baaab")


def database():
    db = sqlite3.connect(":memory:")
    db.create_function("f", 1, callback)
    db.execute("select f(1)").fetchall()


def attribute():
    Odd().value


def formatting():
    "%r" % (Odd(),)


def fresh():
    space = {"park": park}
    exec(compile("\n\n\ndef späte(n):\n    return [park()\n      for _ in range(n)]\nspäte(1)\n", "<fresh>", "exec"), space)


async def coroutine():
    async def inner():
        park()
    await inner()


def awaiting():
    try:
        coroutine().send(None)
    except StopIteration:
        pass


works = [lambda: recursion(60), generator, sorting, encoding, matching, database, attribute, formatting, fresh, awaiting]
for i, w in enumerate(works):
    threading.Thread(target=w, name="parked-%d" % i, daemon=True).start()
for w in works:
    arrived.acquire()


def asleep(tid):
    with open("/proc/self/task/%d/stat" % tid) as f:
        return f.read().rsplit(")", 1)[1].split()[0] == "S"


# Between arriving and parking a thread still runs some lines.
while not all(asleep(t.native_id) for t in threading.enumerate() if t is not threading.main_thread()):
    pass
faulthandler.dump_traceback(sys.stdout, all_threads=True)
print("parked", flush=True)
sys.stdin.read()
