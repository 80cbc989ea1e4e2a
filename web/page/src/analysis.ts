// The server's analysis of a range: the numbers of `sliver report`, the call tree behind them, how each
// thread spent its time, and the tasks of a runtime. All times are ns.

import { count } from './format';

export interface Share {
  name: string;
  waits: number;
  total_ns: number;
}
export interface LockRow {
  name: string;
  kind: string;
  addr: string;
  process?: number; // PID, of an analysis of several processes
  exclusive: boolean;
  waits: number;
  total_ns: number;
  longest_ns: number;
  most_waiting: number;
  holders: Share[];
  holder_functions: Share[];
  waiter_functions: Share[];
  no_holder: string;
}
export interface CallRow {
  call: string;
  kind: string;
  for: string;
  waits: number;
  total_ns: number;
  longest_ns: number;
  threads: number;
}
export interface WaitFunc {
  name: string;
  file: string;
  line: number;
  waits: number;
  total_ns: number;
  longest_ns: number;
  kind: string;
  kind_ns: number;
  for: string;
}
export interface OnCPU {
  name: string;
  file: string;
  line: number;
  self_ns: number;
  total_ns: number;
}
export interface Fact {
  name: string;
  value: string;
}
export interface LongWait {
  tid: number;
  thread: string;
  begin_ns: number;
  duration_ns: number;
  cut: boolean;
  state: string;
  for: string;
  facts: Fact[];
  stack: { func: string; file: string; line: number; inlined: boolean }[];
}
export interface TaskWait {
  for: string;
  func: string;
  file: string;
  line: number;
  waits: number;
  tasks: number;
  total_ns: number;
  longest_ns: number;
  holders: string[];
}
export interface IOFinding {
  rule: string;
  advice: string;
  path: string;
  tid: number;
  thread: string;
  at_ns: number;
  ops: number;
  requested_bytes: number;
  buffer_bytes: number;
  size_bytes: number;
  total_ns: number;
  longest_ns: number;
  count: number;
  opened: string[];
  stack: string[];
  also?: string[];
  also_more?: number;
}
export interface IOFile {
  path: string; // of several files with alike names: their pattern
  files?: number; // how many these are
  kind: string;
  opens: number;
  open: number;
  ops: number;
  syncs: number;
  read_bytes: number;
  written_bytes: number;
  total_ns: number;
  p50_ns: number;
  p99_ns: number;
  max_ns: number;
  misses: number;
  missed_ns: number;
  faults: number;
  faulted_ns: number;
  stack: string[];
}
export interface IORing {
  path: string;
  ops: number;
  syncs: number;
  others: number;
  errors: number;
  read_bytes: number;
  written_bytes: number;
  total_ns: number;
  max_ns: number;
}
export interface TracedCall {
  at_ns: number;
  duration_ns: number;
  tid: number;
  thread: string;
  caller: string;
  on_cpu_ns: number | null; // null: not known
  runnable_ns: number | null;
  off_cpu_ns: number | null;
  woken_by: string;
}
export interface Traced {
  name: string;
  file: string;
  line: number;
  calls: number;
  left: number;
  total_ns: number;
  p50_ns: number;
  p90_ns: number;
  p99_ns: number;
  p999_ns: number;
  max_ns: number;
  on_cpu_ns: number; // of the timed calls
  runnable_ns: number;
  off_cpu_ns: number;
  timed: number;
  times_exact: boolean;
  slowest: TracedCall[];
  histogram: { up_to_ns: number; calls: number }[];
}
export interface Left {
  threads: number;
  ns: number;
  other_threads: number;
  other_ns: number;
}
export interface Report {
  recording: { name: string; duration_ns: number; interval_ns: number };
  goroutines?: { what: string; count: number; ran_ns: number; ready_ns: number; idle: number; waits: TaskWait[] };
  locks: LockRow[];
  calls: CallRow[];
  functions: WaitFunc[];
  on_cpu: OnCPU[];
  longest: LongWait[];
  losses: string[];
  idle: Left;
  io?: { findings: IOFinding[]; files: IOFile[]; uring?: IORing[]; part?: boolean };
  traced?: Traced[];
  more: { files?: number; traced?: number };
  cost: { samples: number };
}
export interface ThreadTime {
  seq: number;
  tid: number;
  name: string;
  observed: number;
  cpu: number;
  runnable: number;
  lock: number;
  io: number;
  sleep: number;
  other: number;
  idle: number;
  stopped: number;
  is_idle?: boolean;
}
export interface TreeColumns {
  parent: number[];
  func: number[];
  samples: number[];
  cpu: number[];
  wall: number[];
  wait: number[];
  lock: number[];
  idle: number[];
  folded: number;
}
export interface AFunc {
  name: string;
  file?: string;
  line?: number;
  module?: string;
  kind?: string;
  thread?: number;
}
export interface TaskFunc {
  name: string;
  tasks: number;
  ran: number;
  ready: number;
  waited: number;
  longest: number;
  at: number;
  seq: number;
  process?: string; // name and PID, of several processes
}
export interface TaskRow {
  id: number;
  name: string;
  func: string;
  ran: number;
  ready: number;
  waited: number;
  longest: number;
  at: number;
  seq: number;
  why?: string;
  process: number; // index of the process, of several
}
export interface Tasks {
  what: string;
  count: number;
  idle: number;
  funcs: TaskFunc[];
  list: TaskRow[];
  more: number;
}
export interface Analysis {
  from: number;
  to: number;
  report: Report;
  threads: ThreadTime[];
  tree: TreeColumns;
  funcs: AFunc[];
  tasks?: Tasks;
  process?: string; // of a recording of several, the one that was analyzed, if it was only one
  processes?: number; // how many were analyzed
  of?: number; // how many there are
}

// notSampled is the function of CPU time that no sample has.
export const notSampled = '(not sampled)';

// States of a thread's time, in the order in which bars show them.
export const parts = ['cpu', 'runnable', 'lock', 'io', 'sleep', 'other', 'stopped', 'idle'] as const;
export type Part = (typeof parts)[number];
export const partWords: Record<Part, string> = {
  cpu: 'running',
  runnable: 'waiting for a CPU',
  lock: 'waiting for a lock or condition',
  io: 'waiting for I/O',
  sleep: 'sleeping',
  other: 'waiting for something else',
  stopped: 'stopped',
  idle: 'idle: nothing to do',
};

// cpuTotal is the CPU time of all threads of the range.
export function cpuTotal(a: Analysis): number {
  return a.threads.reduce((sum, t) => sum + t.cpu, 0);
}

// A line for something that took or wasted time, the worst first.
export interface Finding {
  kind: 'cpu' | 'lock' | 'gil' | 'wait' | 'task' | 'runnable' | 'io' | 'call';
  score: number; // ns lost or spent
  head: string; // the name to look for
  text: string; // what it did
  func?: string; // function to light up
  lock?: string; // lock to open
  tab?: string; // tab to open
  at?: { t0: number; t1: number; seq: number };
}

// share is part/whole in percent, as text.
function share(part: number, whole: number): string {
  const p = whole > 0 ? (100 * part) / whole : 0;
  return `${p >= 9.95 ? p.toFixed(0) : p.toFixed(1)} %`;
}

// Owned reports whether a function is the program's own code.
export type Owned = (f: AFunc) => boolean;

// ownCPU is the CPU time of each of the program's own functions together with the library and runtime
// code that it called, without own functions that it called. Each sample counts for one function.
export interface OwnCPU {
  func: AFunc;
  cpu: number;
  mostly: string; // where most of it was spent, if that is another function
  callers: string[]; // own functions that lead to it on its heaviest path, the outermost first
}

export function ownCPU(a: Analysis, owned: Owned): OwnCPU[] {
  const t = a.tree;
  const n = t.parent.length;
  const self = Float64Array.from(t.cpu);
  for (let i = n - 1; i > 0; i--) self[t.parent[i]!]! -= t.cpu[i]!;
  const nearest = new Int32Array(n).fill(-1); // function of the nearest own caller, or of the node itself
  const at = new Int32Array(n).fill(-1); // its node
  const sums = new Map<number, { cpu: number; leaf: Map<string, number>; nodes: Map<number, number> }>();
  for (let i = 1; i < n; i++) {
    const f = t.func[i]!;
    const is = a.funcs[f];
    const own = !!is && owned(is);
    nearest[i] = own ? f : nearest[t.parent[i]!]!;
    at[i] = own ? i : at[t.parent[i]!]!;
    const to = nearest[i]!;
    if (to < 0 || !(self[i]! > 0)) continue;
    let s = sums.get(to);
    if (!s) {
      s = { cpu: 0, leaf: new Map(), nodes: new Map() };
      sums.set(to, s);
    }
    s.cpu += self[i]!;
    s.nodes.set(at[i]!, (s.nodes.get(at[i]!) ?? 0) + self[i]!);
    if (f !== to && is) s.leaf.set(is.name, (s.leaf.get(is.name) ?? 0) + self[i]!);
  }
  return [...sums]
    .map(([f, s]) => {
      const [leaf, ns] = [...s.leaf].reduce((x, y) => (y[1] > x[1] ? y : x), ['', 0]);
      const callers: string[] = [];
      for (let k = t.parent[[...s.nodes].reduce((x, y) => (y[1] > x[1] ? y : x))[0]]!; k > 0; k = t.parent[k]!) {
        const by = a.funcs[t.func[k]!];
        if (by && owned(by) && by.name !== callers[0]) callers.unshift(by.name);
      }
      return { func: a.funcs[f]!, cpu: s.cpu, mostly: ns > s.cpu / 4 ? leaf : '', callers };
    })
    .sort((x, y) => y.cpu - x.cpu);
}

// coverage is the share of the CPU time that samples attribute to a stack; 1: all of it.
export function coverage(a: Analysis): number {
  const lost = a.report.on_cpu.find((f) => f.name === notSampled)?.self_ns ?? 0;
  const cpu = cpuTotal(a);
  return cpu > 0 ? 1 - Math.min(1, lost / cpu) : 1;
}

// whole reports a single wait that lasted nearly all of the range, such as a main thread that waits for
// the others to end: it explains nothing.
export function whole(w: { waits: number; longest_ns: number }, range: number): boolean {
  return w.waits === 1 && w.longest_ns > 0.9 * range;
}

// findings are the lines of the overview's summary.
export function findings(a: Analysis, owned: Owned, dur: (ns: number) => string): Finding[] {
  const out: Finding[] = [];
  const r = a.report;
  const range = a.to - a.from;
  const cpu = cpuTotal(a);
  const own = ownCPU(a, owned);
  const top = r.on_cpu.find((f) => f.self_ns > 0 && !f.name.startsWith('('));
  const first = own[0];
  if (first && first.cpu > 0.05 * cpu) {
    out.push({
      kind: 'cpu',
      score: first.cpu,
      head: first.func.name,
      func: first.func.name,
      text: [
        `${share(first.cpu, cpu)} of the CPU time (${dur(first.cpu)})`,
        first.callers.length ? `, called by ${first.callers.slice(-2).join(' › ')}` : '',
        first.mostly ? `, mostly in ${first.mostly}` : '',
      ].join(''),
    });
  } else if (top) {
    out.push({
      kind: 'cpu',
      score: top.self_ns,
      head: top.name,
      func: top.name,
      text: `${share(top.self_ns, cpu)} of the CPU time (${dur(top.self_ns)})`,
    });
  }
  for (const l of r.locks.filter((l) => l.exclusive && !whole({ waits: l.waits, longest_ns: l.longest_ns }, range)).slice(0, 3)) {
    if (l.total_ns < 0.01 * range) continue;
    const by = l.holders[0]?.name.replace(/ \((lock word|runtime|.*inferred.*)\)$/, '');
    const held = l.holder_functions[0]?.name;
    const gil = l.name.startsWith('GIL');
    out.push({
      kind: gil ? 'gil' : 'lock',
      score: l.total_ns,
      head: gil ? 'Python GIL' : l.name,
      lock: l.name,
      text: [
        `threads waited ${dur(l.total_ns)} for it, ${l.most_waiting} at once at most`,
        by ? `; held mostly by ${by}` : '',
        held ? ` in ${held}` : '',
        l.waiter_functions[0] ? `; wanted in ${l.waiter_functions[0].name}` : '',
      ].join(''),
    });
  }
  const g = r.goroutines;
  for (const w of (g?.waits ?? []).filter((w) => /^(sync\.|channel)/.test(w.for)).slice(0, 2)) {
    if (w.total_ns < 0.01 * range) continue;
    out.push({
      kind: 'lock',
      score: w.total_ns,
      head: `${w.for} in ${w.func}`,
      func: w.func,
      text: [
        `${w.tasks} goroutine${w.tasks === 1 ? '' : 's'} waited ${dur(w.total_ns)}, ${dur(w.longest_ns)} at most`,
        w.holders?.length ? `; held in ${w.holders[0]}` : '',
      ].join(''),
    });
  }
  if (a.tasks && a.tasks.what !== 'goroutine') {
    const slow = [...a.tasks.list].sort((x, y) => y.longest - x.longest)[0];
    if (slow && slow.longest > 5e6) {
      out.push({
        kind: 'task',
        score: slow.ran,
        head: slow.func.split(' ').pop() || slow.name,
        func: slow.func.split(' ').pop(),
        at: slow.seq >= 0 ? { t0: slow.at, t1: slow.at + slow.longest, seq: slow.seq } : undefined,
        text: [
          `${a.tasks.what} ${slow.name.replace(/^(asyncio task|virtual thread) \d+ ?/, '')} kept its thread busy`,
          ` for ${dur(slow.longest)} without a break; it ran ${dur(slow.ran)} in all`,
        ].join(''),
      });
    }
  }
  // What a child process did while its parent waited is in the recording too.
  const passed = ['lock', 'GIL', 'idle', 'sleep', ...((a.of ?? 1) > 1 ? ['child'] : [])];
  for (const c of r.calls.filter((c) => !passed.includes(c.kind) && !whole(c, range)).slice(0, 1)) {
    if (c.total_ns > 0.2 * range)
      out.push({
        kind: 'wait',
        score: 0.3 * c.total_ns,
        head: c.for || c.call,
        text: `threads waited ${dur(c.total_ns)} in ${c.call}, ${c.waits} times`,
      });
  }
  for (const f of (r.io?.findings ?? []).slice(0, 2))
    out.push({ kind: 'io', score: f.longest_ns, head: f.rule, tab: 'io', text: f.advice });
  const slow = [...(r.traced ?? [])].sort((x, y) => y.max_ns - x.max_ns)[0];
  if (slow?.slowest[0]) {
    const c = slow.slowest[0];
    const went = [
      [c.on_cpu_ns, 'on a CPU'],
      [c.runnable_ns, 'waiting for one'],
      [c.off_cpu_ns, 'in waits'],
    ] as const;
    const off = went.map(([ns, where]) => (ns === null ? '' : `, ${dur(ns)} ${where}`)).join('');
    out.push({
      kind: 'call',
      score: Infinity, // the user asked for these
      head: slow.name,
      tab: 'traced',
      text: [
        `${count(slow.calls)} calls, p50 ${dur(slow.p50_ns)}, p99 ${dur(slow.p99_ns)}`,
        `; the slowest took ${dur(c.duration_ns)}${off.replace(',', ':')}`,
      ].join(''),
    });
  }
  const runnable = a.threads.reduce((sum, t) => sum + t.runnable, 0);
  if (runnable > 0.25 * range && runnable > 0.25 * cpu) {
    out.push({
      kind: 'runnable',
      score: 0.2 * Math.min(runnable, cpu),
      head: 'CPUs are short',
      text: `threads were ready to run but waited ${dur(runnable)} for a CPU`,
    });
  }
  return out.sort((x, y) => y.score - x.score);
}
