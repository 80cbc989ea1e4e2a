// A recording that the page carries in itself (sliver export -o run.html): its columns are read into
// calls and lanes, which answer what a server would. See export/page for the layout.

import type { Analysis } from './analysis';
import type { PathStep } from './path';
import type { Wake } from './between';
import type { Func, LockInfo, ProcessInfo } from './proto';

interface Header {
  version: number;
  base?: string;
  unit: number;
  process: Record<string, unknown> & { exe: string; arch: string };
  wall: number;
  to: number;
  program: string;
  notes: string[] | null;
  reason: string;
  funcs: Func[];
  places: [number, number][];
  waits: string[] | null;
  locks: LockInfo[] | null;
  held: LockWords[] | null;
  threads: { seq: number; process?: number; tid: number; name: string; main?: boolean; samples: number; idle?: boolean; lens: number[] }[];
  samples: number;
  lost: number;
  pause_p50: number;
  pause_p99: number;
  overhead: number;
  interval: number;
  analysis: Analysis;
  with_idle: Analysis;
  columns: string[];
  among?: { processes: ProcessInfo[]; arrows: Wake[]; path: PathStep[] }; // of several processes
  tasks?: TaskHead[]; // one for each process that has tasks, as a server has them
}

interface TaskHead {
  process?: number; // index in among.processes
  what: string;
  idle: number;
  lost: number;
  more: number;
  reasons: string[];
  stacks: { name: string; file?: string; line?: number }[][];
  len: number;
  list: {
    id: number;
    parent?: number;
    func?: string;
    ran: number;
    ready: number;
    waited: number;
    spans: number;
    seen: [number, number, number][];
  }[]; // time, reason, stack
}

// LockWords are what the table of locks says about the part of a wait in which one thread held the lock.
export interface LockWords {
  lock: string;
  kind: string;
  addr?: string;
  exclusive?: boolean;
  holder?: string;
  holder_in?: string;
  waiter_in?: string;
  no_holder?: string;
}

// Lane is a row of things that follow each other.
export class Lane {
  start: number[] = [];
  end: number[] = [];
  value: number[] = [];

  // at is the index of the first item that ends after t.
  at(t: number): number {
    let lo = 0;
    let hi = this.end.length;
    while (lo < hi) {
      const m = (lo + hi) >> 1;
      if (this.end[m]! > t) hi = m;
      else lo = m + 1;
    }
    return lo;
  }
}

// Calls is a lane of calls: the value is the place. Samples and CPU time are their own and their callees'.
export class Calls extends Lane {
  samples: number[] = [];
  cpu: number[] = [];
}

export interface SharedThread {
  seq: number;
  process: number; // index in the header's among.processes
  tid: number;
  name: string;
  main: boolean;
  idle: boolean;
  samples: number;
  rows: Calls[];
  states: Lane;
  waits: number[];
  locks: Lane;
  // Waits as the table of locks counts them, by holder; the value is the index in the header's held times 8 (1: idle,
  // 2: fitted, 4: it is of the same wait as the one before).
  held: Lane;
  pauses: Lane;
  gaps: Lane;
  missed: Lane; // CPU time, ns, that no sample has
  ran: { at: number[]; ns: Float64Array }; // CPU time, at times
  first: number;
  last: number;
}

// SharedTask is a goroutine, an asyncio task, or a virtual thread. Spans have the values of thread states.
export interface SharedTask {
  id: number;
  parent?: number;
  func?: string;
  ran: number;
  ready: number;
  waited: number;
  spans: Lane;
  threads: number[];
  reasons: number[];
  seen: { at: number; reason: string; stack: number }[];
}

// TaskGroup: the tasks of one process, those that ran longest first, and those that waited longest.
export interface TaskGroup {
  head: TaskHead;
  tasks: SharedTask[];
  waiters: SharedTask[];
}

export interface Recording {
  head: Header;
  threads: SharedThread[];
  groups: TaskGroup[];
}

// carried reports whether the page has a recording in itself.
export function carried(): boolean {
  return document.getElementById('data') !== null;
}

// load reads it.
export async function load(): Promise<Recording> {
  const text = document.getElementById('data')!.textContent!.trim();
  const raw = atob(text);
  const zipped = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) zipped[i] = raw.charCodeAt(i);
  const stream = new Blob([zipped]).stream().pipeThrough(new DecompressionStream('gzip'));
  return read(new Uint8Array(await new Response(stream).arrayBuffer()));
}

export function read(bytes: Uint8Array): Recording {
  const n = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + n))) as Header;
  if (head.version !== 1) throw new Error(`this file has data of version ${head.version}, the page reads version 1`);
  let at = 4 + n;
  const threads = head.threads.map((t) => {
    const cols = new Map<string, Column>();
    t.lens.forEach((len, i) => {
      cols.set(head.columns[i]!, new Column(bytes.subarray(at, at + len)));
      at += len;
    });
    return thread(t, (name) => cols.get(name)!, head);
  });
  const groups = (head.tasks ?? []).map((g) => {
    const tasks = tasksIn(head, g, new Column(bytes.subarray(at, at + g.len)));
    at += g.len;
    return { head: g, tasks, waiters: [...tasks].sort((a, b) => b.waited - a.waited) };
  });
  return { head, threads, groups };
}

function tasksIn(head: Header, group: TaskHead, col: Column): SharedTask[] {
  const { unit } = head;
  return group.list.map(({ spans: n, seen, ...t }) => {
    const out: SharedTask = {
      ...t,
      spans: new Lane(),
      threads: [],
      reasons: [],
      seen: seen.map(([at, reason, stack]) => ({ at, reason: group.reasons[reason] ?? '', stack })),
    };
    let at = 0;
    for (let i = 0; i < n; i++) {
      at += col.next();
      out.spans.start.push(at * unit);
      at += col.next();
      out.spans.end.push(at * unit);
      const v = col.next();
      out.spans.value.push(((v & 0xff) | ((v >> 8) << 24)) >>> 0);
      out.threads.push(head.threads[col.next() - 1]?.seq ?? -1);
      out.reasons.push(col.next() - 1);
    }
    return out;
  });
}

// Column is a list of varints.
class Column {
  private at = 0;
  constructor(private b: Uint8Array) {}

  get more(): boolean {
    return this.at < this.b.length;
  }

  next(): number {
    let v = 0;
    for (let k = 1; ; k *= 128) {
      const x = this.b[this.at++] ?? 0;
      v += (x & 127) * k;
      if (x < 128) return v;
    }
  }
}

function lane(time: Column, len: Column, value: Column | null, unit: number, gap = false): Lane {
  const out = new Lane();
  let t = 0;
  while (time.more) {
    t += time.next();
    const n = len.next();
    out.start.push(t * unit);
    out.end.push((t + n) * unit);
    out.value.push(value ? value.next() : 0);
    if (!gap) t += n;
  }
  return out;
}

function thread(t: Header['threads'][number], col: (name: string) => Column, head: Header): SharedThread {
  const u = head.unit;
  const rows: Calls[] = [];
  const open: { start: number; place: number; samples: number; cpu: number }[] = [];
  const seen: [Column, Column] = [col('seentime'), col('seen')];
  const rancols: [Column, Column] = [col('rantime'), col('ran')];
  const ran = { at: [] as number[], ns: [] as number[] };
  let seenAt = 0,
    seenNext = -1,
    seenN = 0,
    ranAt = 0,
    ranNext = -1,
    ranNS = 0;
  const nextSeen = (): void => {
    if (!seen[0].more) {
      seenNext = Infinity;
      return;
    }
    seenAt += seen[0].next();
    seenNext = seenAt;
    seenN = seen[1].next();
  };
  const nextRan = (): void => {
    if (!rancols[0].more) {
      ranNext = Infinity;
      return;
    }
    ranAt += rancols[0].next();
    ranNext = ranAt;
    ranNS = rancols[1].next();
  };
  nextSeen();
  nextRan();
  // spend gives samples and CPU time before a time to the stack that is open.
  const spend = (until: number): void => {
    for (; seenNext < until; nextSeen()) if (open.length) open[open.length - 1]!.samples += seenN;
    for (; ranNext < until; nextRan()) {
      if (open.length) open[open.length - 1]!.cpu += ranNS;
      ran.at.push(ranNext * u);
      ran.ns.push(ranNS);
    }
  };
  let at = 0;
  const time = col('time');
  const ends = col('ends');
  const begins = col('begins');
  const place = col('place');
  const leave = (): void => {
    const c = open.pop()!;
    rows[open.length] ??= new Calls();
    const r = rows[open.length]!;
    r.start.push(c.start * u);
    r.end.push(at * u);
    r.value.push(c.place);
    r.samples.push(c.samples);
    r.cpu.push(c.cpu);
    const by = open[open.length - 1];
    if (by) {
      by.samples += c.samples;
      by.cpu += c.cpu;
    }
  };
  let first = -1;
  while (time.more) {
    at += time.next();
    if (first < 0) first = at;
    spend(at);
    for (let n = ends.next(); n > 0 && open.length; n--) leave();
    for (let n = begins.next(); n > 0; n--) open.push({ start: at, place: place.next(), samples: 0, cpu: 0 });
  }
  spend(Infinity);
  while (open.length) leave();
  const waitcol = col('wait');
  const states = lane(col('statetime'), col('statelen'), col('state'), u);
  return {
    seq: t.seq,
    process: t.process ?? 0,
    tid: t.tid,
    name: t.name,
    main: !!t.main,
    idle: !!t.idle,
    samples: t.samples,
    rows,
    states,
    waits: states.start.map(() => waitcol.next()),
    locks: lane(col('locktime'), col('locklen'), col('lock'), u),
    held: lane(col('heldtime'), col('heldlen'), col('held'), u, true),
    pauses: lane(col('pausetime'), col('pauselen'), null, u),
    gaps: lane(col('gaptime'), col('gaplen'), col('gap'), u, true),
    missed: lane(col('misstime'), col('misslen'), col('miss'), u),
    ran: { at: ran.at, ns: Float64Array.from(ran.ns) },
    first: Math.max(first, 0) * u,
    last: at * u,
  };
}
