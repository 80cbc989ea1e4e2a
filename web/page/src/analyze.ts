// The analysis of a part of the recording that the page carries: what package web/analysis does on a
// server. CPU time comes from the shares that were computed for the whole recording.

import { type AFunc, type Analysis, notSampled, type OnCPU, type ThreadTime, type TreeColumns } from './analysis';
import type { Calls, Recording, SharedThread } from './shared';
import { lockTable } from './locktable';
import { ownCode } from './own';

const classLock = 1,
  classIO = 2,
  classSleep = 3,
  classIdle = 5;

// Merged is a tree that is made: nodes by parent and function.
class Merged {
  columns: TreeColumns = { parent: [-1], func: [-1], samples: [0], cpu: [0], wall: [0], wait: [0], lock: [0], idle: [0], folded: 0 };
  private child = new Map<string, number>();

  node(parent: number, func: number): number {
    const k = `${parent}/${func}`;
    let n = this.child.get(k);
    if (n === undefined) {
      const c = this.columns;
      n = c.parent.length;
      this.child.set(k, n);
      c.parent.push(parent);
      c.func.push(func);
      for (const col of [c.samples, c.cpu, c.wall, c.wait, c.lock, c.idle]) col.push(0);
    }
    return n;
  }

  // sum makes values include those of callees.
  sum(): void {
    const c = this.columns;
    for (let i = c.parent.length - 1; i > 0; i--)
      for (const col of [c.samples, c.cpu, c.wall, c.wait, c.lock, c.idle]) col[c.parent[i]!]! += col[i]!;
  }
}

// Walk goes through a thread's stack in the order of time.
class Walk {
  private at: number[];

  constructor(
    private t: SharedThread,
    t0: number,
  ) {
    this.at = t.rows.map((r) => r.at(t0));
  }

  // stack is the places at a time, outermost first, and when the stack changes next. Times must not fall.
  stack(t: number): { places: number[]; until: number } {
    const places: number[] = [];
    let until = Infinity;
    for (let d = 0; d < this.t.rows.length; d++) {
      const r: Calls = this.t.rows[d]!;
      while (this.at[d]! < r.end.length && r.end[this.at[d]!]! <= t) this.at[d]!++;
      const i = this.at[d]!;
      if (!(r.start[i]! <= t)) {
        until = Math.min(until, r.start[i] ?? Infinity);
        break;
      }
      places.push(r.value[i]!);
      until = Math.min(until, r.end[i]!);
    }
    return { places, until };
  }
}

interface Sum {
  total: number;
  longest: number;
  waits: number;
  threads: Set<number>;
}

function note<K>(m: Map<K, Sum>, k: K, ns: number, seq: number): void {
  let s = m.get(k);
  if (!s) {
    s = { total: 0, longest: 0, waits: 0, threads: new Set() };
    m.set(k, s);
  }
  s.total += ns;
  s.longest = Math.max(s.longest, ns);
  s.waits++;
  s.threads.add(seq);
}

export function analyze(
  rec: Recording,
  threads: SharedThread[],
  t0: number,
  t1: number,
  o: { idle: boolean; byThread: boolean },
): Analysis {
  const { head } = rec;
  const tree = new Merged();
  const funcs: AFunc[] = [...head.funcs];
  const fn = (place: number): number => head.places[place]![0];
  let missedAt = -1;
  const missed = (): number => {
    if (missedAt < 0) missedAt = funcs.push({ name: notSampled }) - 1;
    return missedAt;
  };
  const kinds = new Set(head.funcs.map((f) => f.kind ?? 'native'));
  const owned = ownCode(kinds, new Set(head.among?.processes.map((p) => p.exe ?? '') ?? [head.process.exe]));
  const asker = (places: number[]): string => {
    for (let i = places.length - 1; i >= 0; i--) if (owned(head.funcs[fn(places[i]!)]!)) return head.funcs[fn(places[i]!)]!.name;
    return places.length ? head.funcs[fn(places[places.length - 1]!)]!.name : '[unknown]';
  };
  const out: ThreadTime[] = [];
  const calls = new Map<string, Sum>();
  const waitFuncs = new Map<string, Sum>();
  const left = { threads: 0, ns: 0, other_threads: 0, other_ns: 0 };
  for (const t of threads) {
    let root = 0;
    if (o.byThread) {
      funcs.push({ name: t.name, thread: t.seq });
      root = tree.node(0, funcs.length - 1);
    }
    const path = (places: number[]): number => places.reduce((n, p) => tree.node(n, fn(p)), root);
    const c = tree.columns;
    const time: ThreadTime = {
      seq: t.seq,
      tid: t.tid,
      name: t.name,
      observed: Math.max(0, Math.min(t1, t.last) - Math.max(t0, t.first)),
      cpu: 0,
      runnable: 0,
      lock: 0,
      io: 0,
      sleep: 0,
      other: 0,
      idle: 0,
      stopped: 0,
    };
    const ran = new Walk(t, t0);
    const end = t1 >= t.last ? Infinity : t1; // the last sample's CPU time is at its end
    for (let i = 0; i < t.ran.at.length; i++) {
      const at = t.ran.at[i]!;
      if (at < t0) continue;
      if (at >= end) break;
      const n = path(ran.stack(at).places);
      c.cpu[n]! += t.ran.ns[i]!;
      c.samples[n]!++;
      time.cpu += t.ran.ns[i]!;
    }
    // The range gets its share of CPU time that no sample has.
    for (let i = 0; i < t.missed.start.length; i++) {
      const [a, b] = [t.missed.start[i]!, Math.max(t.missed.end[i]!, t.missed.start[i]! + 1)];
      const ns = (t.missed.value[i]! * Math.max(0, Math.min(b, t1) - Math.max(a, t0))) / (b - a);
      if (ns > 0) {
        c.cpu[tree.node(root, missed())]! += ns;
        time.cpu += ns;
      }
    }
    const walk = new Walk(t, t0);
    const s = t.states;
    for (let i = s.at(t0); i < s.start.length && s.start[i]! < t1; i++) {
      const value = s.value[i]!;
      const state = value & 0xff;
      const cls = value >>> 24;
      const [a, b] = [Math.max(s.start[i]!, t0), Math.min(s.end[i]!, t1)];
      const ns = b - a;
      if (ns <= 0) continue;
      let places: number[] = [];
      for (let at = a; at < b; ) {
        const now = walk.stack(at);
        const to = Math.min(now.until, b);
        if (to <= at) break;
        places = now.places;
        const n = path(places);
        if (state === 3 && cls === classIdle) c.idle[n]! += to - at;
        else {
          c.wall[n]! += to - at;
          if (state > 1) c.wait[n]! += to - at;
          if (cls === classLock) c.lock[n]! += to - at;
        }
        at = to;
      }
      if (state === 1) continue;
      if (state === 2) time.runnable += ns;
      else if (state === 6 || state === 7) time.stopped += ns;
      else if (cls === classLock) time.lock += ns;
      else if (cls === classIO) time.io += ns;
      else if (cls === classSleep) time.sleep += ns;
      else if (cls === classIdle) time.idle += ns;
      else time.other += ns;
      if (state < 3 || (cls === classIdle && !o.idle)) continue;
      const what = head.waits?.[t.waits[i]! - 1] ?? 'not known';
      if (cls !== classLock) note(calls, `${what}\0${cls === classIO ? 'file' : cls === classSleep ? 'sleep' : 'call'}`, ns, t.seq);
      note(waitFuncs, asker(places), ns, t.seq);
    }
    // What the samples found off the CPUs is scaled to what the scheduler's account leaves.
    const waits = time.runnable + time.lock + time.io + time.sleep + time.other + time.idle + time.stopped;
    const k = waits > 0 ? Math.max(0, time.observed - time.cpu) / waits : 0;
    for (const p of ['runnable', 'lock', 'io', 'sleep', 'other', 'idle', 'stopped'] as const) time[p] *= k;
    if (time.idle >= 0.99 * (time.observed - time.runnable) && time.idle > 0) {
      time.is_idle = true;
      left.threads++;
      left.ns += time.idle;
    } else if (time.idle > 0) {
      left.other_threads++;
      left.other_ns += time.idle;
    }
    out.push(time);
  }
  tree.sum();
  return {
    from: t0,
    to: t1,
    threads: out,
    tree: tree.columns,
    funcs,
    report: {
      ...head.analysis.report,
      goroutines: undefined,
      longest: head.analysis.report.longest
        .filter((w) => w.begin_ns < t1 && w.begin_ns + w.duration_ns > t0)
        .map((w) => ({ ...w, begin_ns: w.begin_ns - t0 })),
      idle: o.idle ? { threads: 0, ns: 0, other_threads: 0, other_ns: 0 } : left,
      on_cpu: onCPU(tree.columns, funcs),
      io: head.analysis.report.io && {
        ...head.analysis.report.io,
        findings: head.analysis.report.io.findings
          .map((f) => ({ ...f, at_ns: f.at_ns + head.analysis.from - t0 }))
          .filter((f) => f.at_ns >= 0 && f.at_ns <= t1 - t0),
      },
      locks: lockTable(rec, threads, t0, t1, o.idle),
      calls: [...calls]
        .map(([k, s]) => {
          const [what, kind] = k.split('\0') as [string, string];
          return {
            call: kind === 'sleep' ? 'sleep' : what,
            kind,
            for: kind === 'sleep' ? '' : what,
            waits: s.waits,
            total_ns: s.total,
            longest_ns: s.longest,
            threads: s.threads.size,
          };
        })
        .sort((a, b) => b.total_ns - a.total_ns),
      functions: [...waitFuncs]
        .map(([name, s]) => ({
          name,
          file: '',
          line: 0,
          waits: s.waits,
          total_ns: s.total,
          longest_ns: s.longest,
          kind: '',
          kind_ns: 0,
          for: '',
        }))
        .sort((a, b) => b.total_ns - a.total_ns),
    },
  };
}

function onCPU(t: TreeColumns, funcs: AFunc[]): OnCPU[] {
  const self = Float64Array.from(t.cpu);
  for (let i = self.length - 1; i > 0; i--) self[t.parent[i]!]! -= t.cpu[i]!;
  const sums = new Map<number, { self: number; total: number }>();
  for (let i = 1; i < self.length; i++) {
    const f = t.func[i]!;
    if (!(t.cpu[i]! > 0) || funcs[f]?.thread !== undefined) continue;
    let s = sums.get(f);
    if (!s) {
      s = { self: 0, total: 0 };
      sums.set(f, s);
    }
    s.self += self[i]!;
    let again = false;
    for (let p = t.parent[i]!; p > 0 && !again; p = t.parent[p]!) again = t.func[p] === f;
    if (!again) s.total += t.cpu[i]!;
  }
  return [...sums]
    .map(([f, s]) => ({ name: funcs[f]!.name, file: funcs[f]!.file ?? '', line: funcs[f]!.line ?? 0, self_ns: s.self, total_ns: s.total }))
    .sort((a, b) => b.self_ns - a.self_ns);
}
