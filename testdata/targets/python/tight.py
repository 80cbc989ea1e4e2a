"""Calls and returns without a pause, in all the ways that Python has, below functions
that never return, after "ready PID" and a line of input, until its standard input ends.
"""
import functools
import os
import sys
import threading


def leaf(n):
    return n


def plain(n):
    leaf(n)
    return leaf(n)


def keyed(n):
    return sorted((2, 1), key=leaf)


def called(n):
    return list(map(functools.partial(leaf), (1, 2)))


def numbers(n):
    yield n
    yield leaf(n)


def generated(n):
    for _ in numbers(n):
        pass


def expressed(n):
    return sum(leaf(x) for x in (1, 2))


def delegates(n):
    yield from numbers(n)


def delegated(n):
    return list(delegates(n))


async def awaited(n):
    return leaf(n)


async def waits(n):
    return await awaited(n)


def sent(n):
    try:
        waits(n).send(None)
    except StopIteration:
        pass


class Thing:
    def __init__(self, n):
        self.n = n

    @property
    def value(self):
        return leaf(self.n)

    def __getattr__(self, name):
        return leaf(name)

    def __lt__(self, other):
        return leaf(True)

    def __len__(self):
        return leaf(3)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return leaf(True)


def made(n):
    return Thing(n)


def valued(n):
    t = Thing(n)
    return t.value, t.other, t < t, len(t)


def entered(n):
    with Thing(n):
        raise ValueError


def raised(n):
    try:
        raises(n)
    except ValueError:
        pass


def raises(n):
    leaf(n)
    raise ValueError(n)


def starred(n):
    return leaf(*(n,)), leaf(**{"n": n})


def fresh(n):
    space = {}
    exec("def new(n):\n\treturn n\nx = new(1)\n", space)


def deep(n):
    return deep(n - 1) if n > 1 else leaf(n)


WAYS = [plain, keyed, called, generated, expressed, delegated, sent, made, valued, entered, raised, starred, deep]


def inner():
    n = 0
    while True:
        n += 1
        for way in WAYS:
            for _ in range(20):
                way(20)
        if n % 50 == 0:
            fresh(n)


def middle(_):
    inner()


def outer():
    list(map(middle, [1]))


if __name__ == "__main__":
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    threading.Thread(target=outer, daemon=True).start()
    print("busy", flush=True)
    sys.stdin.read()
    os._exit(0)
