"""An asyncio service with several quick tasks and one that computes for 80 ms without an await.

Prints "serving"; ends with its standard input.
"""
import asyncio
import sys
import threading
import time


def crunch_report(ms):
    until = time.monotonic() + ms / 1000
    n = 0
    while time.monotonic() < until:
        n += sum(range(100))
    return n


async def slow_report_task():
    while True:
        crunch_report(80)
        await asyncio.sleep(0.04)


async def quick_task(n):
    while True:
        crunch_report(0.3)
        await asyncio.sleep(0.01)


async def main():
    tasks = [asyncio.create_task(quick_task(i), name=f"quick-{i}") for i in range(8)]
    tasks.append(asyncio.create_task(slow_report_task(), name="slow-report"))
    print("serving", flush=True)
    await asyncio.gather(*tasks)


threading.Thread(target=lambda: asyncio.run(main()), daemon=True, name="service").start()
sys.stdin.read()
