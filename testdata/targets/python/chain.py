"""Runs a script of calls and reports each of them with its times, as the programs
in ../include/chain.h do: one JSON object a line for each call, and a summary.

Functions are called in the ways that Python has: directly, by C, as generators
and coroutines, as methods, and made by exec. Nothing is written while it runs.
"""
import argparse
import functools
import json
import os
import random
import select
import sys
import threading
import time

now = time.monotonic_ns
APART = 45_000_000  # as SCRIPT_APART there, in ns
DEPTH = 8


class Node:
    def __init__(self, way, depth):
        self.way, self.depth, self.calls, self.pre, self.post, self.work = way, depth, [], 0, 0, 0


def script_time(rnd):
    return rnd.randint(30_000_000, 120_000_000) if rnd.random() < 1 / 3 else rnd.randint(2_000_000, 8_000_000)


def make(rnd, way, depth, budget, unit):
    """A call and all that it makes, with how long it takes in ns, not scaled."""
    n = Node(way, depth)
    n.work = rnd.randrange(3)
    total = n.pre = script_time(rnd) if depth and rnd.random() < .75 else 0
    last = {}
    while total < budget if depth == 0 else depth < DEPTH and total + 30_000_000 < budget and rnd.random() < .75:
        gap = script_time(rnd) if rnd.random() < .25 else 0
        c = rnd.randrange(len(WAYS))
        if c in last:
            gap = max(gap, last[c] + APART - total)
        total += gap
        child, took = make(rnd, c, depth + 1, rnd.randint(30_000_000, 600_000_000) if depth == 0 else budget - total, unit)
        total += took
        last[c] = total
        n.calls.append((gap * unit // 6, child))
    n.post = script_time(rnd) if rnd.random() < .5 or total == 0 else 0
    total += n.post
    n.pre, n.post = n.pre * unit // 6, n.post * unit // 6
    return n, total


class Run:
    """One thread's account."""

    def __init__(self, name):
        self.name, self.calls, self.fresh = name, [], 0
        self.poll = select.poll()

    def spend(self, n, ns):
        end = now() + ns
        if n.work == 0 or ns == 0:
            while now() < end:
                pass
        elif n.work == 1:
            time.sleep(ns / 1e9)
        else:
            self.poll.poll(ns / 1e6)

    def body(self, n):
        self.spend(n, n.pre)
        for gap, child in n.calls:
            self.spend(n, gap)
            rec = [0, 0, 0, 0, 0, "", n.depth + 1, child]
            self.calls.append(rec)
            rec[1] = now()
            WAYS[child.way](self, child, rec)
            rec[4] = now()
        self.spend(n, n.post)


# How far a function has come is noted by itself: rec[2] and rec[3].


def chain_plain(run, n, rec):
    rec[2] = now()
    rec[5] = chain_plain
    run.body(n)
    rec[3] = now()


def chain_key(run, n, rec):
    rec[2] = now()
    rec[5] = chain_key
    run.body(n)
    rec[3] = now()
    return 0


def by_sort(run, n, rec):
    sorted([0], key=lambda _: chain_key(run, n, rec))


def by_partial(run, n, rec):
    list(map(functools.partial(chain_mapped, run, n), [rec]))


def chain_mapped(run, n, rec):
    rec[2] = now()
    rec[5] = chain_mapped
    run.body(n)
    rec[3] = now()


def chain_numbers(run, n, rec):
    rec[2] = now()
    rec[5] = chain_numbers
    run.body(n)
    rec[3] = now()
    yield 1


def by_generator(run, n, rec):
    for _ in chain_numbers(run, n, rec):
        pass


async def chain_awaited(run, n, rec):
    rec[2] = now()
    rec[5] = chain_awaited
    run.body(n)
    rec[3] = now()


async def waits(run, n, rec):
    await chain_awaited(run, n, rec)


def by_coroutine(run, n, rec):
    try:
        waits(run, n, rec).send(None)
    except StopIteration:
        pass


class Chained:
    def __init__(self, run, n, rec):
        self.of = run, n, rec

    @property
    def chain_value(self):
        run, n, rec = self.of
        rec[2] = now()
        rec[5] = Chained.chain_value.fget
        run.body(n)
        rec[3] = now()

    def __lt__(self, other):
        self.chain_value
        return True


def by_compare(run, n, rec):
    Chained(run, n, rec) < 0


def by_exec(run, n, rec):
    run.fresh += 1
    name = "chain_fresh_%s_%d" % (run.name, run.fresh)
    space = {"now": now}
    exec(compile("def %s(run, n, rec):\n\trec[2] = now()\n\trec[5] = %s\n\trun.body(n)\n\trec[3] = now()\n" % (name, name), "<fresh>", "exec"), space)
    space[name](run, n, rec)


WAYS = [chain_plain, by_sort, by_partial, by_generator, by_coroutine, by_compare, by_exec]


def chain_root(run, n, rec):
    rec[2] = now()
    rec[5] = chain_root
    run.body(n)
    rec[3] = now()


def thread(run, n, start):
    start.wait()
    rec = [0, now(), 0, 0, 0, "", 0, n]
    run.calls.append(rec)
    run.tid = threading.get_native_id()
    chain_root(run, n, rec)
    rec[4] = now()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=int, default=1)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--unit", type=int, default=6)
    p.add_argument("--wait-go", action="store_true")
    p.add_argument("--wait-end", action="store_true")
    p.add_argument("--report", required=True)
    a = p.parse_args()
    start = threading.Event()
    runs, threads = [], []
    for i in range(a.threads):
        run = Run("t%d" % i)
        n, _ = make(random.Random(a.seed * 1000 + i), 0, 0, a.seconds * 1_000_000_000 * 6 // a.unit, a.unit)
        runs.append(run)
        if i:
            threads.append(threading.Thread(target=thread, args=(run, n, start)))
            threads[-1].start()
        else:
            root = n
    if a.wait_go:
        print("ready", os.getpid(), flush=True)
        sys.stdin.readline()
    start.set()
    thread(runs[0], root, start)
    for t in threads:
        t.join()
    count = 0
    with open(a.report, "w") as out:
        for run in runs:
            for _, call, begin, end, ret, fn, depth, n in run.calls:
                count += 1
                code = fn.__code__
                json.dump({"thread": run.name, "tid": run.tid, "func": getattr(code, "co_qualname", code.co_name), "depth": depth, "call": call,
                           "begin": begin, "end": end, "return": ret, "work": ("spin", "sleep", "poll")[n.work]}, out)
                out.write("\n")
        json.dump({"summary": {"calls": count, "interrupted": 0, "script": ""}}, out)
        out.write("\n")
    print("done", flush=True)
    if a.wait_end:
        sys.stdin.readline()


main()
