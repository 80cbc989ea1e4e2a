"""syncs.py PATH: one thread appends to PATH and syncs it, all the time. It prints "ready PID", and "done" 4 s
after each line of input: sliver has the stacks of 100 syncs a second."""
import os
import sys
import threading
import time


def append(fd):
    os.write(fd, b"x" * 100)
    os.fsync(fd)


def appending():
    fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    while True:
        append(fd)
        some.set()


some = threading.Event()
threading.Thread(target=appending, daemon=True).start()
some.wait()
print("ready", os.getpid(), flush=True)
for line in sys.stdin:
    time.sleep(4)
    print("done", flush=True)
