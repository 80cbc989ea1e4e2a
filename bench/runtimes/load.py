"""Work of twelve kinds, each in a function of its own, over and over. Its argument is a
file into which it writes how many rounds it has made, as 8 bytes.
"""
import json
import os
import re
import sys


def down(n):
    return n and down(n - 1) + 1


def recursion():
    return down(60)


def numbers(n):
    for i in range(n):
        yield i * i


def generators():
    return sum(numbers(700))


def encoding(data):
    return json.dumps(data)


def decoding(text):
    return json.loads(text)


def matching(text):
    return len(re.findall(r"(\w+)@(\w+)", text))


def sorting(items):
    return sorted(items, key=lambda x: -x)


def joining(items):
    return ",".join(str(x) for x in items)


def counting(text):
    n = {}
    for c in text:
        n[c] = n.get(c, 0) + 1
    return n


class Point:
    def __init__(self, x, y):
        self.x, self.y = x, y

    def dot(self, other):
        return self.x * other.x + self.y * other.y


def objects():
    a = [Point(i, i + 1) for i in range(150)]
    return sum(p.dot(q) for p, q in zip(a, a[1:]))


def summing():
    n = 0
    for i in range(1500):
        n += i % 7
    return n


def once(data, text, items):
    recursion()
    generators()
    decoding(encoding(data))
    matching(text)
    sorting(items)
    joining(items)
    counting(text)
    objects()
    summing()


def main():
    data = {"k%d" % i: [i, str(i), None, 1.5] for i in range(60)}
    text = "name@host some words " * 30
    items = [i * 7919 % 401 for i in range(400)]
    out = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
    n = 0
    while True:
        once(data, text, items)
        n += 1
        os.pwrite(out, n.to_bytes(8, "little"), 0)


main()
