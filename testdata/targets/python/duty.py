"""duty.py BURN_US REST_US SECONDS: works and rests in turns; the last line is its own CPU account.

    truth burn NS rest NS write 0 total NS elapsed NS
"""
import sys
import time

spent = {"burn": 0, "rest": 0}


def burn(ns):
    begin = time.thread_time_ns()
    now = begin
    while now < begin + ns:
        for i in range(200):
            i * i
        now = time.thread_time_ns()
    spent["burn"] += now - begin


def rest(seconds):
    begin = time.thread_time_ns()
    time.sleep(seconds)
    spent["rest"] += time.thread_time_ns() - begin


def main():
    burn_ns, rest_s, seconds = int(sys.argv[1]) * 1000, int(sys.argv[2]) / 1e6, float(sys.argv[3])
    print("ready", flush=True)
    first, cpu = time.monotonic_ns(), time.thread_time_ns()
    while time.monotonic_ns() < first + seconds * 1e9:
        burn(burn_ns)
        rest(rest_s)
    print(f"truth burn {spent['burn']} rest {spent['rest']} write 0 total {time.thread_time_ns() - cpu} elapsed {time.monotonic_ns() - first}")


main()
