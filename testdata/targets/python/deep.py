"""deep N: sleeps below N calls of dive()."""
import os
import sys
import time

sys.setrecursionlimit(100000)


def dive(n):
    if n:
        return dive(n - 1)
    print("ready", os.getpid(), flush=True)
    while True:
        time.sleep(0.5)


dive(int(sys.argv[1]))
