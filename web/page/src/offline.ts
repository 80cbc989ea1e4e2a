// Offline answers from the recording that the page carries what Conn asks a server.

import type { Analysis } from './analysis';
import { analyze } from './analyze';
import {
  type FrameThread,
  GAPS,
  type Handlers,
  type Hello,
  LOCKS,
  type Link,
  type Loads,
  PAUSES,
  type ProcessSums,
  type Status,
  STATES,
  VIEW,
  type Where,
} from './proto';
import { lanesOf } from './offlanes';
import { sumsOf } from './offsums';
import { taskOf, tasksOf } from './offtasks';
import { type Calls, type Lane, load, type Recording, type SharedThread } from './shared';

interface Args {
  t0?: number;
  t1?: number;
  threads?: number[];
  thread?: number;
  depth?: number;
  at?: number;
  func?: number;
  funcs?: number[];
  near?: Where;
  n?: number;
  idle?: boolean;
  by_thread?: boolean;
  bin?: number;
  from?: number;
  max?: number;
  mode?: string;
  task?: number;
}

const stateNames = ['unknown', 'running', 'runnable', 'blocked', 'uninterruptible', 'page fault', 'stopped', 'traced', 'dead'];

export class Offline implements Link {
  up = false;
  kinds = '';
  runtime = false; // whoever wrote the file decided
  readonly sifts = false;
  readonly token = '';
  private rec: Recording | null = null;
  private next = 1;

  constructor(private h: Handlers) {}

  open(): void {
    load().then(
      (rec) => this.begin(rec),
      (e: Error) => this.h.state(false, `The data of this file cannot be read: ${e.message}`),
    );
  }

  private begin(rec: Recording): void {
    this.rec = rec;
    const { head } = rec;
    this.up = true;
    this.h.state(true, '');
    this.h.hello({
      op: 'hello',
      version: 1,
      program: head.program,
      live: false,
      base: head.base ?? '0',
      wall: head.wall,
      process: head.process as never,
      ...(head.among ? { processes: head.among.processes } : {}),
      control: [],
      formats: [],
      notes: head.notes ?? [],
      first_lane: 0xff00,
      speedscope: false,
    } as Hello);
    this.h.names({ op: 'names', from: 0, funcs: head.funcs, locks_from: 0, locks: head.locks ?? [] });
    this.h.status(this.status());
  }

  private status(): Status {
    const { head, threads } = this.rec!;
    const cpu = new Map(head.analysis.threads.map((t) => [t.seq, t.cpu]));
    return {
      op: 'status',
      from: 0,
      to: head.to,
      done: true,
      reason: head.reason,
      held: 0,
      dropped: 0,
      threads: threads.map((t) => ({
        seq: t.seq,
        ...(head.among ? { process: t.process } : {}),
        tid: t.tid,
        name: t.name,
        main: t.main,
        cpu: cpu.get(t.seq) ?? 0,
        samples: t.samples,
        depth: t.rows.length,
        ended: false,
        idle: t.idle,
        state: stateNames[(t.states.value[t.states.value.length - 1] ?? 0) & 0xff] ?? '',
        call: -1,
        last: t.last,
      })),
      status: {
        paused: false,
        interval_ns: head.interval,
        samples: head.samples,
        lost: head.lost,
        pause_p50: head.pause_p50,
        pause_p99: head.pause_p99,
        overhead: head.overhead,
        threads: '',
      },
    };
  }

  view(v: { t0: number; t1: number; bin: number; threads: number[]; funcs?: number[] }): number {
    const id = this.next++;
    queueMicrotask(() => {
      const { threads, head } = this.rec!;
      const lit = new Set(v.funcs);
      const frames = v.threads
        .map((seq) => threads.find((t) => t.seq === seq))
        .filter((t) => t !== undefined)
        .map((t) => frameOf(t, v.t0, v.t1, v.bin, head.places, lit));
      // The page numbers a view when this call returns.
      setTimeout(() => this.h.frame({ type: VIEW, id, now: head.to, bin: v.bin, threads: frames, bytes: 0 }));
    });
    return id;
  }

  ask<T>(op: string, args: Record<string, unknown>): Promise<T> {
    if (!this.rec) return Promise.reject(new Error('the data are not read yet'));
    try {
      return Promise.resolve(this.answer(op, args as Args) as T);
    } catch (e) {
      return Promise.reject(e as Error);
    }
  }

  get<T>(): Promise<T> {
    return Promise.reject(new Error('this file has no server'));
  }

  post<T>(): Promise<T> {
    return Promise.reject(new Error('this file has no server'));
  }

  private chosen(a: Args): SharedThread[] {
    return a.threads ? this.rec!.threads.filter((t) => a.threads!.includes(t.seq)) : this.rec!.threads;
  }

  private answer(op: string, a: Args): unknown {
    const rec = this.rec!;
    const [t0, t1] = a.t1 ? [a.t0 ?? 0, a.t1] : [0, rec.head.to];
    switch (op) {
      case 'analysis':
        if (!a.t1 && !a.threads && !a.by_thread) {
          const { analysis, with_idle } = rec.head;
          return a.idle ? ({ ...with_idle, tree: analysis.tree, funcs: analysis.funcs } as Analysis) : analysis;
        }
        return analyze(rec, this.chosen(a), t0, t1, { idle: !!a.idle, byThread: !!a.by_thread });
      case 'detail':
        return this.detail(a.thread!, a.at!, a.depth ?? -1);
      case 'sums':
        return sumsOf(rec, a.thread!, a.at!, a.depth ?? -1);
      case 'lanes':
        return lanesOf(rec, this.chosen(a), t0, t1, a.n ?? 1, this.loads(t0, t1, a.n ?? 1).bins);
      case 'tasks':
        return tasksOf(rec, a);
      case 'task':
        return taskOf(rec, a);
      case 'loads':
        return this.loads(t0, t1, a.n ?? 1);
      case 'calls':
        return this.calls(a, t0, t1);
      case 'hits':
        return this.hits(a, t0, t1);
      case 'status':
        return this.status();
      case 'arrows':
        return { arrows: (rec.head.among?.arrows ?? []).filter((x) => x.end >= t0 && x.end < t1) };
      case 'path':
        return { steps: rec.head.among?.path ?? [] };
      case 'processes':
        return this.processes();
    }
    throw new Error(`this file cannot answer "${op}"; open the recording with sliver view`);
  }

  // processes adds up how the threads of each process spent the recording.
  private processes(): ProcessSums[] {
    const { head, threads } = this.rec!;
    const of = new Map(threads.map((t) => [t.seq, t.process]));
    const sums = (head.among?.processes ?? []).map((_, process) => ({
      process,
      threads: 0,
      cpu: 0,
      runnable: 0,
      lock: 0,
      io: 0,
      sleep: 0,
      other: 0,
      idle: 0,
      stopped: 0,
    }));
    for (const t of head.analysis.threads) {
      const s = sums[of.get(t.seq) ?? 0];
      if (!s) continue;
      s.threads++;
      for (const k of ['cpu', 'runnable', 'lock', 'io', 'sleep', 'other', 'idle', 'stopped'] as const) s[k] += t[k];
    }
    return sums;
  }

  private detail(seq: number, at: number, depth: number): unknown {
    const rec = this.rec!;
    const t = rec.threads.find((x) => x.seq === seq);
    if (!t) throw new Error(`there is no thread ${seq}`);
    const calls = [];
    for (let d = 0; d < t.rows.length && (depth < 0 || d <= depth); d++) {
      const r = t.rows[d]!;
      const i = r.at(at);
      if (!(r.start[i]! <= at)) break;
      const [fn, line] = rec.head.places[r.value[i]!]!;
      const f = rec.head.funcs[fn]!;
      const [start, end] = [r.start[i]!, r.end[i]!];
      calls.push({
        depth: d,
        func: fn,
        name: f.name,
        module: f.module,
        file: f.file,
        line: line || f.line,
        kind: f.kind,
        start,
        end,
        samples: r.samples[i]!,
        cpu: r.cpu[i]!,
        wait: off(t.states, start, end),
        self: end - start - inside(t.rows[d + 1], start, end),
      });
    }
    const lane = (l: Lane, more: (i: number) => object): object | undefined => {
      const i = l.at(at);
      return l.start[i]! <= at ? { start: l.start[i]!, end: l.end[i]!, ...more(i) } : undefined;
    };
    return {
      thread: seq,
      at,
      interval: rec.head.interval,
      calls,
      state: lane(t.states, (i) => {
        const v = t.states.value[i]!;
        const call = ((v >> 8) & 0xffff) - 1;
        return { state: stateNames[v & 0xff], ...(call >= 0 ? { call } : {}), wait: rec.head.waits?.[t.waits[i]! - 1] };
      }),
      lock: lane(t.locks, (i) => ({ lock: rec.head.locks?.[t.locks.value[i]!] })),
    };
  }

  // loads spreads the CPU time: a running thread uses one CPU. Its states agree with the account of the
  // scheduler; CPU time without a sample is spread over the stretch that it is known for.
  private loads(t0: number, t1: number, n: number): Loads {
    const bins = new Array<number>(n).fill(0);
    const width = (t1 - t0) / n;
    const share = this.rec!.threads.map((t) => {
      let sum = 0;
      const add = (from: number, to: number, cpus: number): void => {
        const a = Math.max(from, t0);
        const b = Math.min(to, t1);
        if (!(b > a)) return;
        sum += (b - a) * cpus;
        const k0 = Math.min(n - 1, Math.floor((a - t0) / width));
        const k1 = Math.min(n - 1, Math.floor((b - t0) / width));
        for (let k = k0; k <= k1; k++)
          bins[k]! += (Math.max(0, Math.min(b, t0 + (k + 1) * width) - Math.max(a, t0 + k * width)) * cpus) / width;
      };
      const s = t.states;
      for (let i = s.at(t0); i < s.start.length && s.start[i]! < t1; i++) {
        if (stateNames[s.value[i]! & 0xff] === 'running') add(s.start[i]!, s.end[i]!, 1);
      }
      const m = t.missed;
      for (let i = m.at(t0); i < m.start.length && m.start[i]! < t1; i++) {
        add(m.start[i]!, m.end[i]!, Math.min(1, m.value[i]! / Math.max(1, m.end[i]! - m.start[i]!)));
      }
      return { seq: t.seq, cpu: sum / (t1 - t0) };
    });
    return { t0, t1, bins, share };
  }

  private each(a: Args, t0: number, t1: number, f: (t: SharedThread, depth: number, r: Calls, i: number, fn: number) => void): void {
    for (const t of this.chosen(a)) {
      t.rows.forEach((r, d) => {
        for (let i = r.at(t0); i < r.start.length && r.start[i]! < t1; i++) f(t, d, r, i, this.rec!.head.places[r.value[i]!]![0]);
      });
    }
  }

  private calls(a: Args, t0: number, t1: number): unknown {
    const hist = new Array<number>(96).fill(0);
    const all: number[] = [];
    let total = 0;
    let longest: Where | null = null;
    let max = -1;
    const order = new Order(a.near);
    this.each(a, t0, t1, (t, depth, r, i, fn) => {
      if (fn !== a.func) return;
      const ns = r.end[i]! - r.start[i]!;
      const w = { thread: t.seq, depth, start: r.start[i]! };
      all.push(ns);
      total += ns;
      hist[Math.min(95, Math.floor(2 * Math.log2(Math.max(1, ns))))]!++;
      if (ns > max) [max, longest] = [ns, w];
      if (t.seq === a.near?.thread) order.add(w);
    });
    all.sort((x, y) => x - y);
    return {
      count: all.length,
      total,
      min: all[0] ?? 0,
      median: all[all.length >> 1] ?? 0,
      max: Math.max(0, max),
      hist,
      prev: order.prev,
      next: order.next,
      longest,
    };
  }

  private hits(a: Args, t0: number, t1: number): unknown {
    const want = new Set(a.funcs);
    const funcs: Record<number, number> = {};
    const order = new Order(a.near);
    let count = 0;
    let total = 0;
    const until = new Map<number, [number, number][]>(); // by thread: times inside of a hit
    this.each(a, t0, t1, (t, depth, r, i, fn) => {
      if (!want.has(fn)) return;
      count++;
      funcs[fn] = (funcs[fn] ?? 0) + 1;
      order.add({ thread: t.seq, depth, start: r.start[i]! });
      let spans = until.get(t.seq);
      if (!spans) {
        spans = [];
        until.set(t.seq, spans);
      }
      if (spans.some(([x, y]) => x <= r.start[i]! && r.end[i]! <= y)) return;
      spans.push([r.start[i]!, r.end[i]!]);
      total += Math.min(r.end[i]!, t1) - Math.max(r.start[i]!, t0);
    });
    return { count, total, first: order.first, last: order.last, prev: order.prev, next: order.next, funcs };
  }
}

// Order finds the first and the last of some calls, and the neighbors of one.
class Order {
  first: Where | null = null;
  last: Where | null = null;
  prev: Where | null = null;
  next: Where | null = null;

  constructor(private near?: Where) {}

  add(w: Where): void {
    if (!this.first || before(w, this.first)) this.first = w;
    if (!this.last || before(this.last, w)) this.last = w;
    if (!this.near) return;
    if (before(w, this.near) && (!this.prev || before(this.prev, w))) this.prev = w;
    if (before(this.near, w) && (!this.next || before(w, this.next))) this.next = w;
  }
}

function before(a: Where, b: Where): boolean {
  return (a.start - b.start || a.thread - b.thread || a.depth - b.depth) < 0;
}

// inside is how long the calls of a row last within a time.
function inside(r: Lane | undefined, t0: number, t1: number): number {
  let sum = 0;
  if (r) for (let i = r.at(t0); i < r.start.length && r.start[i]! < t1; i++) sum += Math.min(r.end[i]!, t1) - Math.max(r.start[i]!, t0);
  return sum;
}

// off is how long a thread was seen off the CPUs within a time.
function off(s: Lane, t0: number, t1: number): number {
  let sum = 0;
  for (let i = s.at(t0); i < s.start.length && s.start[i]! < t1; i++)
    if ((s.value[i]! & 0xff) !== 1) sum += Math.min(s.end[i]!, t1) - Math.max(s.start[i]!, t0);
  return sum;
}

// frameOf is a thread's part of a view: items thinner than bin are merged and show the longest, or the
// longest of those that are searched for.
export function frameOf(t: SharedThread, t0: number, t1: number, bin: number, places: [number, number][], lit: Set<number>): FrameThread {
  const out = { start: [] as number[], end: [] as number[], busy: [] as number[], value: [] as number[], count: [] as number[] };
  const rows: FrameThread['rows'] = [];
  const add = (r: Lane, depth: number, value: (i: number) => number): void => {
    const from = out.start.length;
    let cell = NaN; // of the merged item that is last
    let best = 0;
    let found = false;
    for (let i = r.at(t0); i < r.start.length && r.start[i]! < t1; i++) {
      const [s, e] = [r.start[i]!, r.end[i]!];
      const d = e - s;
      const k = out.start.length - 1;
      const v = value(i);
      const c = Math.floor(s / bin);
      if (d < bin && c === cell) {
        const is = depth < 0xff00 && lit.has(v);
        if ((is && !found) || (is === found && d > best)) [best, found, out.value[k]] = [d, is, v];
        out.end[k] = e;
        out.busy[k]! += d;
        out.count[k]!++;
        continue;
      }
      cell = d < bin ? c : NaN;
      best = d;
      found = depth < 0xff00 && lit.has(v);
      out.start.push(s);
      out.end.push(e);
      out.busy.push(d);
      out.value.push(v);
      out.count.push(1);
    }
    if (out.start.length > from) rows.push({ depth, from, to: out.start.length });
  };
  for (const [d, r] of t.rows.entries()) add(r, d, (i) => places[r.value[i]!]![0]);
  for (const [depth, l] of [
    [STATES, t.states],
    [LOCKS, t.locks],
    [PAUSES, t.pauses],
    [GAPS, t.gaps],
  ] as const)
    add(l, depth, (i) => l.value[i]!);
  return {
    seq: t.seq,
    lost: 0,
    last: t.last,
    seen: t.last,
    rows,
    start: Float64Array.from(out.start),
    end: Float64Array.from(out.end),
    busy: Float32Array.from(out.busy),
    value: Uint32Array.from(out.value),
    count: Uint32Array.from(out.count),
  };
}
