"""Threads that take turns in holding the global interpreter lock: each sleeps in C
with it, which no other thread can end, and then runs a little Python.

After "ready PID" and a line of input it runs for so many seconds as the first
argument says, then writes lines "TID from to" to the second: surely TID held the
lock all that time. Then it prints "done" and waits for another line.
"""
import ctypes
import os
import sys
import threading
import time

now = time.monotonic_ns
usleep = ctypes.PyDLL(None).usleep  # PyDLL keeps the lock
HOLD = 12_000_000
log = []


def turns(until):
    tid = threading.get_native_id()
    begin = now()
    while begin < until:
        end = now()  # it has just got the lock, which nobody has asked for yet
        begin = now()
        usleep(HOLD // 1000)  # and others have by now: it loses it behind this
        if begin - end < 100_000:
            log.append((tid, begin, begin + HOLD))


def main():
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    until = now() + int(float(sys.argv[1]) * 1e9)
    ts = [threading.Thread(target=turns, args=(until,)) for _ in range(4)]
    for t in ts:
        t.start()
    for t in ts:
        t.join()
    with open(sys.argv[2], "w") as f:
        for l in log:
            f.write("%d %d %d\n" % l)
    print("done", flush=True)
    sys.stdin.readline()


main()
