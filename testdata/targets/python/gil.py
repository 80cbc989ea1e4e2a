"""Threads that fight for the global interpreter lock, in Python and in C.

Prints "fighting"; ends with its standard input.
"""
import json
import re
import sys
import threading


def deep(n):
    if n:
        return deep(n - 1)
    x = 0
    while True:
        x += 1


def encoding():
    data = [{"a": i, "b": [1, 2, 3]} for i in range(2000)]
    while True:
        json.dumps(data)


def matching():
    while True:
        re.sub("a+", lambda m: m.group(0).upper(), "baaab" * 300)


def numbers():
    n = 0
    while True:
        yield n
        n += 1


def generating():
    for n in numbers():
        pass


for f in (lambda: deep(200), encoding, matching, generating):
    threading.Thread(target=f, daemon=True).start()
print("fighting", flush=True)
sys.stdin.read()
