"""As clock.c, for the interpreter: 30 Python frames deep, a loop that reads the
clock and adds up the gaps. clock.py FILE; ends when it is killed."""

import gc
import mmap
import struct
import sys
import time

GAP = 5000  # ns: what one round takes, and the interpreter's own housekeeping


def watch(sums):
    clock, pack = time.perf_counter_ns, struct.Struct("=QQQ").pack_into
    lost = gaps = worst = 0
    last = clock()
    while True:
        t = clock()
        gap = t - last
        if gap > GAP:
            lost += gap
            gaps += 1
            worst = max(worst, gap)
            pack(sums, 0, lost, gaps, worst)
        last = t


def deep(n, sums):
    if n:
        deep(n - 1, sums)
    else:
        watch(sums)


with open(sys.argv[1], "r+b") as f:
    f.truncate(4096)
    page = mmap.mmap(f.fileno(), 4096)
gc.disable()
deep(28, page)  # with the module and the loop: 31, of which the page knows none
