"""Keeps its threads busy in the ways that its arguments say, after "ready PID" and
a line of input, until its standard input ends.
"""
import asyncio
import json
import os
import re
import sqlite3
import sys
import threading


def recursion():
    def down(n):
        return n and down(n - 1) + 1

    while True:
        for n in (3, 40, 300, 900):
            down(n)


def generators():
    def numbers(n):
        for i in range(n):
            yield i

    def doubled(n):
        yield from (2 * x for x in numbers(n))

    while True:
        sum(doubled(20))
        [x for x in numbers(3)]


def encoding():
    data = [{"a": i, "b": [1, 2.5, None], "c": {"d": "e" * i}} for i in range(60)]
    while True:
        json.loads(json.dumps(data, indent=1, default=str))


def matching():
    while True:
        re.sub("a+", lambda m: m.group(0).upper(), "baaab" * 30)
        re.compile("(x+)%d" % os.getpid()).match("xxx")


def database():
    db = sqlite3.connect(":memory:")
    db.create_function("f", 1, lambda x: (x or 0) + 1)
    while True:
        db.execute("with recursive c(x) as (select 1 union all select x+1 from c limit 50) select sum(f(x)) from c").fetchall()


def waiting():
    async def leaf(n):
        if n % 3 == 0:
            await asyncio.sleep(0)
        return n

    async def branch(n):
        return sum([await leaf(i) for i in range(n)])

    async def main():
        while True:
            await asyncio.gather(*(branch(n) for n in range(8)))

    asyncio.run(main())


class Shape:
    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return self.n == other.n

    def __hash__(self):
        return hash(self.n)

    @property
    def area(self):
        return self.n * self.n


def objects():
    while True:
        shapes = {Shape(i) for i in range(30)}
        sorted(shapes, key=lambda s: s.area)
        try:
            raise ValueError(max(s.area for s in shapes))
        except ValueError:
            pass


print("ready", os.getpid(), flush=True)
sys.stdin.readline()
for way in sys.argv[1:]:
    threading.Thread(target=globals()[way], daemon=True, name=way).start()
print("busy", flush=True)
sys.stdin.read()
os._exit(0)
