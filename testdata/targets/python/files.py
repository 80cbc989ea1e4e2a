"""files.py PATH: prints "ready PID"; for each line of input it opens PATH, reads 25 times 100 bytes, and
prints "truth" with its own functions, innermost first, then "done"."""
import os
import sys
import traceback


def reading(fd):
    for _ in range(25):
        os.pread(fd, 100, 0)
    return [f.name for f in reversed(traceback.extract_stack())]


def serving():
    fd = os.open(sys.argv[1], os.O_RDONLY)
    names = reading(fd)
    os.close(fd)
    return names


print("ready", os.getpid(), flush=True)
for line in sys.stdin:
    print("truth", *serving(), flush=True)
    print("done", flush=True)
