"""Makes functions by exec, runs each once and forgets it, again and again, so that
their code objects and names take each other's places in memory.

Each says who it is three times: by its name, its file and its line. After "ready PID"
and a line of input it runs for some seconds (the first argument), in as many
threads as the second says, then writes a line "name call return" for each function
to the third argument, prints "done" and waits for another line.
"""
import os
import random
import sys
import threading
import time

now = time.monotonic_ns
log = []


def spin(ns):
    end = now() + ns
    while now() < end:
        pass


def numbers(ns):
    end = now() + ns
    while now() < end:
        yield 1


BODIES = [
    "  spin(ns)\n",
    "  end = now() + ns\n  while now() < end:\n    pass\n",
    "  for _ in numbers(ns):\n    pass\n",
    "  sorted([0], key=lambda _: spin(ns))\n",
    "  time.sleep(ns / 1e9)\n",
]


def work(thread, until):
    rnd = random.Random(thread)
    n = 0
    while now() < until:
        n += 1
        name = "fresh_%d_%06d" % (thread, n)
        line = 1 + n % 50000
        space = {"now": now, "spin": spin, "numbers": numbers, "time": time}
        body = BODIES[rnd.randrange(len(BODIES))]
        exec(compile("\n" * (line - 1) + "def %s(ns):\n%s" % (name, body), "<%s>" % name, "exec"), space)
        f = space[name]
        ns = rnd.choice((20_000, 100_000, 400_000, 1_500_000, 3_000_000))
        call = now()
        f(ns)
        log.append((name, call, now()))


def main():
    seconds, threads, out = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    until = now() + int(seconds * 1e9)
    ts = [threading.Thread(target=work, args=(i, until)) for i in range(1, threads)]
    for t in ts:
        t.start()
    work(0, until)
    for t in ts:
        t.join()
    with open(out, "w") as f:
        for l in log:
            f.write("%s %d %d\n" % l)
    print("done", flush=True)
    sys.stdin.readline()


main()
