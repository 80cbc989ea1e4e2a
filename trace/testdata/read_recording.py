#!/usr/bin/env python3
"""Reads a .sliver recording by docs/recording-format.md, with nothing but the
standard library, and prints as JSON: for each thread its name, the number of
slices (activations of functions), of samples and of events, and which functions
its slices are of."""
import bisect, collections, json, struct, sys

TABLE = []
for i in range(256):
    for _ in range(8):
        i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
    TABLE.append(i)

def crc32c(data):
    c = 0xFFFFFFFF
    for b in data:
        c = TABLE[(c ^ b) & 0xFF] ^ c >> 8
    return c ^ 0xFFFFFFFF

def chunks(data):
    if data[:8] != b"\x89SLIVER\n" or struct.unpack_from("<H", data, 8)[0] != 1:
        sys.exit("not a sliver recording of format 1")
    off = 16
    while off + 12 <= len(data):
        typ, n, crc = struct.unpack_from("<4sII", data, off)
        body = data[off + 12 : off + 12 + n]
        if len(body) < n:
            return  # torn off by a kill: what came before is whole
        if crc32c(data[off : off + 8] + body) == crc:
            yield typ.decode(), body
        off += 12 + n

class Numbers:
    def __init__(self, b):
        self.b, self.i = b, 0
    def byte(self):
        self.i += 1
        return self.b[self.i - 1]
    def uvarint(self):
        v = shift = 0
        while True:
            c = self.byte()
            v |= (c & 0x7F) << shift
            shift += 7
            if c < 0x80:
                return v
    def varint(self):
        u = self.uvarint()
        return u >> 1 ^ -(u & 1)
    def list(self, item):
        return [item() for _ in range(self.uvarint())]

def events(b):
    """Yields (time, kind, payload) of an EVNT chunk, first of all its thread."""
    n = Numbers(b)
    seq, count, at = n.uvarint(), n.uvarint(), n.uvarint()
    word = 0
    yield seq
    for _ in range(count):
        head = n.byte()
        kind = head & 0x1F
        at += 0 if head & 0x80 else n.varint()
        payload = 0
        if kind in (1, 2):  # Enter, Move
            attr = n.byte() if head & 0x40 else word >> 48
            word = payload = attr << 48 | ((word & (1 << 48) - 1) + n.varint()) & (1 << 48) - 1
        elif kind != 0:
            payload = n.uvarint()
        yield at, kind, payload

def symbols(b):
    """{(module, address): name of the innermost function}"""
    n = Numbers(b)
    def string():
        size = n.uvarint()
        n.i += size
        return n.b[n.i - size : n.i].decode(errors="replace")
    strings = n.list(string)
    funcs = n.list(lambda: strings[[n.uvarint() for _ in range(6)][0]])
    place = lambda: ((n.uvarint(), n.uvarint()), n.list(lambda: [n.uvarint() for _ in range(3)]))
    return {k: funcs[frames[0][0] >> 1] for k, frames in n.list(place) if frames}

def name(rec, word, t):
    if word >> 48 & 7 == 6:  # no code: the address is the reason why the stack ends
        return "[reason %d]" % (word & 0xFF)
    addr = (word & (1 << 48) - 1) - (0 if word >> 55 & 1 else 1)
    at = max(bisect.bisect([m["at"] for m in rec["maps"]], t) - 1, 0)
    for i, m in enumerate(rec["maps"][at : at + 2]):
        if i and m.get("exec"):
            break  # another program's
        for x in m["mappings"] or []:
            if x["start"] <= addr < x["end"]:
                off, vaddr = addr - x["start"] + x["off"], addr
                for s in rec["modules"][x["module"]].get("segments", []):
                    if s["off"] <= off < s["off"] + s["size"]:
                        vaddr = s["vaddr"] + off - s["off"]
                        break
                return rec["symbols"].get((x["module"], vaddr), "?")
    return "?"

def replay(rec, evs):
    out = {"slices": 0, "samples": 0, "events": 0, "functions": collections.Counter()}
    depth, synced, restoring, left = 0, False, False, 0
    for t, kind, payload in evs:
        out["events"] += 1
        if kind == 1:  # Enter
            if left > 0:
                left -= 1
                fresh = restoring
            else:
                fresh = synced
            if fresh:
                depth += 1
                out["slices"] += 1
                out["functions"][name(rec, payload, t)] += 1
        elif kind == 0 and synced:  # Exit
            depth -= 1
        elif kind == 3:  # Seen
            out["samples"] += payload >> 40 & 0x1FFF
        elif kind == 7:  # Sync: one that a reader needs, or one to pass over
            left, restoring, synced = payload, not synced, True
        elif kind == 8 and payload >> 48 == 5:  # Gap, overwritten: wait for the next Sync
            depth, synced = 0, False
    return out

def main(path):
    rec = {"threads": {}, "modules": [], "maps": [], "symbols": {}}
    evs = collections.defaultdict(list)
    for typ, body in chunks(open(path, "rb").read()):
        if typ == "EVNT":
            it = events(body)
            evs[next(it)].extend(it)
        elif typ == "THRD":
            th = json.loads(body)
            rec["threads"][th["seq"]] = th
        elif typ == "MAPS":
            m = json.loads(body)
            rec["modules"] += m["modules"] or []
            rec["maps"].append(m)
        elif typ == "symb":
            rec["symbols"].update(symbols(body))
        elif typ[0].isupper() and typ not in ("PROC", "ENDS"):
            sys.exit("a chunk %r of a newer format" % typ)
    rec["maps"].sort(key=lambda m: m["at"])
    json.dump([dict(replay(rec, evs[s]), seq=s, name=th["name"]) for s, th in sorted(rec["threads"].items())],
              sys.stdout, indent=1)

main(sys.argv[1])
