"""Tasks of asyncio in two threads, each with an event loop of its own: some that go on,
with names and without, and others that end after one turn, so that their memory is used
again.

After "ready PID" and a line of input it runs for so many seconds as the first argument
says, then writes lines "TID from to name function" to the second: surely the task of that
name ran on TID all that time. The third is how long a task goes on at a time, in ns. Then
it prints "done" and waits for another line.
"""
import asyncio
import os
import sys
import threading
import time

now = time.monotonic_ns
TURN = int(sys.argv[3])
log = []


def work(until):
    n = 0
    while now() < until:
        n += sum(range(50))
    return n


async def deeper(until):
    return work(until)


async def turn(who):
    begin = now()
    await deeper(begin + TURN)
    log.append((threading.get_native_id(), begin, now(), asyncio.current_task().get_name(), who))


async def worker(until):
    while now() < until:
        await turn("worker")
        await asyncio.sleep(0.001)


async def once():
    await turn("once")


async def spawning(until):
    while now() < until:
        await asyncio.create_task(once())
        await asyncio.sleep(0)


async def all_of(until):
    tasks = [asyncio.create_task(worker(until), name="named-%d" % i) for i in range(2)]
    tasks += [asyncio.create_task(worker(until)) for _ in range(2)]
    await asyncio.gather(*tasks, spawning(until))


def main():
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    until = now() + int(float(sys.argv[1]) * 1e9)
    ts = [threading.Thread(target=lambda: asyncio.run(all_of(until))) for _ in range(2)]
    for t in ts:
        t.start()
    for t in ts:
        t.join()
    with open(sys.argv[2], "w") as f:
        for x in log:
            print(*x, file=f)
    print("done", flush=True)
    sys.stdin.readline()


main()
