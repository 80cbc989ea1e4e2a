// The table of locks of a part of the recording that the page carries: the waits, holders and functions are those that
// package report found in the whole recording, cut to the part.

import type { LockRow, Share } from './analysis';
import type { Recording, SharedThread } from './shared';

const maxShares = 5;

interface Part extends Share {
  wait: number; // the one that was added last
}

interface Sum {
  row: LockRow;
  by: Map<string, Part>;
  in: Map<string, Part>;
  wanted: Map<string, Part>;
  edges: [number, number][]; // time, +1 or -1
}

// add adds a part of a wait. A wait counts once for a name; its parts follow each other.
function add(m: Map<string, Part>, name: string | undefined, wait: number, ns: number): void {
  if (!name) return;
  const s = m.get(name) ?? { name, waits: 0, total_ns: 0, wait: -1 };
  if (s.wait !== wait) s.waits++;
  s.wait = wait;
  s.total_ns += ns;
  m.set(name, s);
}

function shares(m: Map<string, Part>): Share[] {
  return [...m.values()]
    .sort((a, b) => b.total_ns - a.total_ns || (a.name < b.name ? -1 : 1))
    .slice(0, maxShares)
    .map(({ name, waits, total_ns }) => ({ name, waits, total_ns }));
}

// most is how many waits there were at once.
function most(edges: [number, number][]): number {
  edges.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  let n = 0;
  let out = 0;
  for (const [, d] of edges) {
    n += d;
    out = Math.max(out, n);
  }
  return out;
}

export function lockTable(rec: Recording, threads: SharedThread[], t0: number, t1: number, idle: boolean): LockRow[] {
  const { head } = rec;
  const sums = new Map<string, Sum>();
  for (const t of threads) {
    const w = t.held;
    const of = head.among?.processes[t.process];
    const process = of?.pid;
    let wait = 0; // the first part of the one at hand
    let whole = 0; // its time so far
    for (let i = 0; i < w.start.length && w.start[i]! < t1; i++) {
      const ns = Math.min(w.end[i]!, t1) - Math.max(w.start[i]!, t0);
      const flags = w.value[i]! & 7;
      if (!(flags & 4)) [wait, whole] = [i, 0];
      if (ns <= 0 || (flags & 1 && !idle)) continue;
      const x = head.held![w.value[i]! >>> 3]!;
      const key = `${process ?? ''}/${x.addr ?? ''}/${x.lock}`;
      let s = sums.get(key);
      if (!s) {
        s = {
          row: {
            name: of ? `${x.lock} · ${of.comm} (${of.pid})` : x.lock,
            kind: x.kind,
            addr: x.addr ?? '',
            ...(process !== undefined && { process }),
            exclusive: !!x.exclusive,
            waits: 0,
            total_ns: 0,
            longest_ns: 0,
            most_waiting: 0,
            holders: [],
            holder_functions: [],
            waiter_functions: [],
            no_holder: '',
          },
          by: new Map(),
          in: new Map(),
          wanted: new Map(),
          edges: [],
        };
        sums.set(key, s);
      }
      if (!whole) s.row.waits++;
      whole += ns;
      s.row.total_ns += ns;
      if (!(flags & 2)) s.row.longest_ns = Math.max(s.row.longest_ns, whole);
      if (x.no_holder) s.row.no_holder = x.no_holder;
      add(s.by, x.holder, wait, ns);
      add(s.in, x.holder_in, wait, ns);
      add(s.wanted, x.waiter_in, wait, ns);
      s.edges.push([Math.max(w.start[i]!, t0), 1], [Math.min(w.end[i]!, t1), -1]);
    }
  }
  return [...sums.values()]
    .map((s) => ({
      ...s.row,
      most_waiting: most(s.edges),
      holders: shares(s.by),
      holder_functions: shares(s.in),
      waiter_functions: shares(s.wanted),
      no_holder: s.by.size ? '' : s.row.no_holder,
    }))
    .sort((a, b) => Number(b.exclusive) - Number(a.exclusive) || b.total_ns - a.total_ns);
}
