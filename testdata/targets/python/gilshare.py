"""One thread takes turns with the global interpreter lock and without it, each for 20 ms.

hold and compare (in C) have it, digest gives it back for each block. idle waits all the time.
Prints "ready"; ends with its standard input.
"""
import hashlib
import sys
import threading
import time

TURN = 0.02
BLOCK = bytes(1 << 20)
LEFT, RIGHT = ["a" * 1000 for _ in range(3000)], ["a" * 999 + "a" for _ in range(3000)]


def hold(end):
    x = 0
    while time.perf_counter() < end:
        for _ in range(1000):
            x += 1


def compare(end):
    while time.perf_counter() < end:
        LEFT == RIGHT


def digest(end):
    while time.perf_counter() < end:
        hashlib.sha256(BLOCK)


def turns():
    while True:
        for f in (hold, digest, compare):
            f(time.perf_counter() + TURN)


def idle():
    threading.Event().wait()


threading.Thread(target=turns, daemon=True).start()
threading.Thread(target=idle, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
