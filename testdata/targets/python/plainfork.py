"""plainfork: a child that was forked without telling the interpreter sleeps in leaf(), below
the __init__ of a class that was made often enough for its call to be specialised."""
import ctypes
import os
import time

parent = os.getpid()


def leaf():
    while os.getppid() == parent:
        time.sleep(0.2)


class Conn:
    def __init__(self, n):
        if n == 99:
            leaf()


def handle():
    for i in range(100):
        Conn(i)


child = ctypes.PyDLL(None).fork()
if child == 0:
    handle()
    os._exit(0)
print("child", child, flush=True)
print("ready", parent, flush=True)
os.waitpid(child, 0)
