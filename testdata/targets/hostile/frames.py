"""An interpreter whose frames form a ring, whose code object is no code object and whose names are
endless, each in a thread that sleeps; one more thread computes honestly. CPython 3.11 and 3.12.
Prints "ready", and computes after a line on standard input."""
import ctypes
import sys
import threading
import time

word = ctypes.sizeof(ctypes.c_void_p)
kept = []


def inner(kind):
    kept.append(kind)
    while True:
        time.sleep(3600)


def outer(kind):
    inner(kind)


def at(address):
    return ctypes.c_uint64.from_address(address)


def frame_of(tid):
    """The address of the internal frame of the thread's innermost Python function."""
    return at(id(sys._current_frames()[tid]) + 3 * word).value


# Offsets in struct _PyInterpreterFrame (Include/internal/pycore_frame.h).
code, previous = (4, 6) if sys.version_info[:2] == (3, 11) else (0, 1)

threads = {}
for kind in ("ring", "self", "nothing", "nocode", "hugename"):
    t = threading.Thread(target=outer, args=(kind,), name=kind, daemon=True)
    t.start()
    threads[kind] = t
while len(kept) < len(threads):
    time.sleep(0.01)
time.sleep(0.2)

f = {kind: frame_of(t.ident) for kind, t in threads.items()}
caller = at(f["ring"] + previous * word).value
at(caller + previous * word).value = f["ring"]
at(f["self"] + previous * word).value = f["self"]
at(f["nothing"] + previous * word).value = 0xDEAD0000BEEF0000
at(f["nocode"] + code * word).value = id(kept)
# A code object of this thread alone, whose name says that it has 2**60 characters.
own = inner.__code__.replace(co_name="n" * 40, co_qualname="q" * 40)
kept.append(own)
at(id(own.co_name) + 2 * word).value = 1 << 60
at(id(own.co_qualname) + 2 * word).value = 1 << 60
at(f["hugename"] + code * word).value = id(own)


def honest():
    end = time.monotonic() + 3600
    while time.monotonic() < end:
        pass


print("ready", flush=True)
sys.stdin.readline()
honest()
