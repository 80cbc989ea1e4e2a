"""ends: two tasks of asyncio that compute in turn, and the program ends with them."""
import asyncio
import time


def burn():
    end = time.thread_time() + 0.02
    while time.thread_time() < end:
        pass


async def worker():
    for _ in range(40):
        burn()
        await asyncio.sleep(0)


async def main():
    await asyncio.gather(asyncio.create_task(worker(), name="one"), asyncio.create_task(worker(), name="two"))


asyncio.run(main())
