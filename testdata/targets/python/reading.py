"""Waits below a recursion over two functions, a call of a C function and a recursion of one."""

import functools
import os
import time


def wait(_):
    time.sleep(3600)
    return 0


def down(n):
    if n:
        return down(n - 1)
    return functools.reduce(lambda a, b: wait(b), [1, 2])


def odd(n):
    return even(n - 1)


def even(n):
    if n:
        return odd(n - 1)
    return down(150)


print("ready", os.getpid(), flush=True)
even(200)
