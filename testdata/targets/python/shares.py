"""Works in several ways in turns, after "ready PID" and a line of input, and accounts for its own CPU time:
"go TID"; after a line "count" it begins to count and says "from NS" (CLOCK_MONOTONIC); after a line "end" it says

    shares NS of each of WAYS, in that order

and waits for another line.
"""
import json
import os
import random
import select
import sys
import threading
import time

cpu = time.thread_time_ns


def leaf(n):
    return n + 1


def loop():
    s = 0
    for i in range(60_000):
        s += i * i
    return s


def calls():
    for i in range(12_000):
        leaf(leaf(i))


def keyed():
    for _ in range(8):
        sorted(range(2000), key=leaf)


def numbers(n):
    for i in range(n):
        yield leaf(i)


def delegate(n):
    yield from numbers(n)


def generators():
    for _ in range(400):
        sum(delegate(30))


def down(n):
    return down(n - 1) + 1 if n else leaf(n)


def recursion():
    for _ in range(200):
        down(60)


def encoding():
    data = [{"a": i, "b": [1, 2.5, None], "c": "d" * i} for i in range(40)]
    for _ in range(25):
        json.loads(json.dumps(data, default=str))


WAYS = [loop, calls, keyed, generators, recursion, encoding]


def turns(lines):
    spent = [0] * len(WAYS)
    order = list(range(len(WAYS)))
    begin = time.monotonic()
    while time.monotonic() < begin + 120:
        random.shuffle(order)
        for i in order:
            t = cpu()
            WAYS[i]()
            spent[i] += cpu() - t
        if select.select([lines], [], [], 0)[0]:
            line = lines.readline()
            if not line.startswith("count"):
                break
            spent = [0] * len(WAYS)
            print("from", time.monotonic_ns(), flush=True)
    print("shares", *spent, flush=True)


def main():
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    print("go", threading.get_native_id(), flush=True)
    turns(sys.stdin)
    sys.stdin.readline()


main()
