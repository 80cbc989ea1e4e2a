// What the page knows of the recording.

import { fillOf, fills, greyFirst, hash, ownFills, ownFirst } from './color';
import { short } from './format';
import { kinds, managed, ownCode, type Place } from './own';
import {
  type Frame,
  type FrameThread,
  type Func,
  GAP,
  type Hello,
  type LockInfo,
  MORE,
  type Names,
  type Processes,
  type Status,
  type ThreadInfo,
  VIEW,
} from './proto';

// Row is one depth or lane of a thread: items in the order of time, of which
// the last may be open.
export class Row {
  n = 0;
  start: Float64Array;
  end: Float64Array;
  busy: Float32Array;
  value: Uint32Array;
  count: Uint32Array;

  constructor(cap: number) {
    this.start = new Float64Array(cap);
    this.end = new Float64Array(cap);
    this.busy = new Float32Array(cap);
    this.value = new Uint32Array(cap);
    this.count = new Uint32Array(cap);
  }

  static of(t: FrameThread, from: number, to: number): Row {
    const r = new Row(0);
    r.n = to - from;
    r.start = t.start.subarray(from, to);
    r.end = t.end.subarray(from, to);
    r.busy = t.busy.subarray(from, to);
    r.value = t.value.subarray(from, to);
    r.count = t.count.subarray(from, to);
    return r;
  }

  dropOpen(): void {
    if (this.n > 0 && this.end[this.n - 1] === Infinity) this.n--;
  }

  // add appends items of a frame; thin ones of one bin become one.
  add(t: FrameThread, from: number, to: number, bin: number): void {
    this.room(to - from);
    for (let i = from; i < to; i++) {
      const k = this.n - 1;
      const s = t.start[i]!;
      const e = t.end[i]!;
      if (
        k >= 0 &&
        e - s < bin &&
        this.end[k]! - this.start[k]! < 2 * bin &&
        this.busy[k]! < bin &&
        Math.floor(this.start[k]! / bin) === Math.floor(s / bin)
      ) {
        if (t.busy[i]! > this.busy[k]!) this.value[k] = t.value[i]!;
        this.end[k] = e;
        this.busy[k]! += t.busy[i]!;
        this.count[k]! += t.count[i]!;
        continue;
      }
      const j = this.n++;
      this.start[j] = s;
      this.end[j] = e;
      this.busy[j] = t.busy[i]!;
      this.value[j] = t.value[i]!;
      this.count[j] = t.count[i]!;
    }
  }

  private room(more: number): void {
    if (this.n + more <= this.start.length) return;
    const cap = Math.max(16, 2 * (this.n + more));
    const grow = <T extends Float64Array | Float32Array | Uint32Array>(old: T, fresh: T): T => {
      fresh.set(old.subarray(0, this.n) as never);
      return fresh;
    };
    this.start = grow(this.start, new Float64Array(cap));
    this.end = grow(this.end, new Float64Array(cap));
    this.busy = grow(this.busy, new Float32Array(cap));
    this.value = grow(this.value, new Uint32Array(cap));
    this.count = grow(this.count, new Uint32Array(cap));
  }

  lead = 0; // the value that has most of the time, as far as added up
  private added = 0; // items that are
  private all = 0;
  private sums = new Map<number, number>();

  // time is how long its items last, all and those of the value that has most, where an open
  // one lasts to edge.
  time(edge: number): [all: number, most: number] {
    for (this.added = Math.min(this.added, this.n); this.added < this.n && this.end[this.added] !== Infinity; this.added++) {
      const v = this.value[this.added]!;
      const sum = (this.sums.get(v) ?? 0) + this.busy[this.added]!;
      this.sums.set(v, sum);
      this.all += this.busy[this.added]!;
      if (sum > (this.sums.get(this.lead) ?? 0)) this.lead = v;
    }
    const most = this.sums.get(this.lead) ?? 0;
    if (this.added === this.n) return [this.all, most];
    const open = Math.max(0, edge - this.start[this.added]!);
    const sum = open + (this.sums.get(this.value[this.added]!) ?? 0);
    if (!most) this.lead = this.value[this.added]!;
    return [this.all + open, Math.max(most, sum)];
  }

  // timeOf is how long the items last whose values are wanted, as time has it.
  timeOf(want: (value: number) => boolean, edge: number): number {
    this.time(edge);
    let sum = 0;
    for (const [v, ns] of this.sums) if (want(v)) sum += ns;
    return sum + (this.added < this.n && want(this.value[this.added]!) ? Math.max(0, edge - this.start[this.added]!) : 0);
  }

  // at is the index of the first item that ends after t.
  at(t: number): number {
    let lo = 0;
    let hi = this.n;
    while (lo < hi) {
      const m = (lo + hi) >> 1;
      if (this.end[m]! > t) hi = m;
      else lo = m + 1;
    }
    return lo;
  }
}

export class ThreadData {
  rows: Row[] = [];
  lanes = new Map<number, Row>();
  last = 0;
  seen = 0;
  id = 0;
  t0 = 0; // what the data covers
  t1 = 0;
  bin = 1;
  lit: number[] | undefined; // functions that merged blocks prefer to show
}

export type ColorBy = 'state' | 'function' | 'module' | 'kind';

// kindFill is the number of a kind's colour.
export function kindFill(kind: string): number {
  return Math.max(
    0,
    kinds.findIndex((k) => k.kind === kind),
  );
}

export interface FuncView extends Func {
  short: string;
  fill: number;
  forms: [string, number][] | null /* of the name, with their widths, once it was drawn */;
}

export class Model {
  hello: Hello | null = null;
  status: Status | null = null;
  threads = new Map<number, ThreadInfo>();
  order: number[] = []; // as the server lists them
  data = new Map<number, ThreadData>();
  funcs: FuncView[] = [];
  kinds = new Set<string>(); // of the functions
  colorBy: ColorBy = 'state';
  locks: LockInfo[] = [];
  share = new Map<number, number>();
  views = new Map<number, { t0: number; t1: number; bin: number; follow: boolean; funcs?: number[] }>();
  gaps = 0; // frames that reported a gap of the connection
  frames = 0;
  bytes = 0;
  namesVersion = 0;
  up = true; // there is a connection
  private stood = 0; // the edge when it was lost
  private offset = -Infinity; // server's clock minus ours, ns
  private offsetAt = 0;

  reset(): void {
    this.funcs = [];
    this.kinds.clear();
    this.locks = [];
    this.data.clear();
    this.views.clear();
    this.offset = -Infinity;
  }

  names(m: Names): void {
    const funcs = m.funcs ?? [];
    const kinds = this.kinds.size;
    for (let i = 0; i < funcs.length; i++) {
      const f = funcs[i]!;
      this.funcs[m.from + i] = { ...f, short: short(f.name), fill: this.colorOf(f), forms: null };
      if (f.kind !== 'error') this.kinds.add(f.kind ?? 'native');
    }
    const locks = m.locks ?? [];
    for (let i = 0; i < locks.length; i++) this.locks[(m.locks_from ?? 0) + i] = locks[i]!;
    this.namesVersion++;
    if (this.colorBy === 'state' && this.kinds.size !== kinds) this.recolor('state'); // what counts as own code depends on them
  }

  // colorOf is the number of a function's color; -1: none.
  private colorOf(f: Func): number {
    if (this.colorBy === 'state') {
      if (f.kind === 'error' || !this.own()(f)) return greyFirst + (hash(f.name) & 1);
      const module = !managed(f) ? f.module : f.file?.includes('/') ? f.file : f.name.slice(0, Math.max(0, f.name.lastIndexOf('.')));
      const hue = module === this.hello?.process.exe ? 0 : hash(module ?? '') % ownFills;
      return ownFirst + 2 * hue + (hash(f.name) & 1);
    }
    if (f.kind === 'error') return -1;
    if (this.colorBy === 'kind') return kindFill(f.kind ?? 'native');
    if (this.colorBy === 'module') return f.module ? hash(f.module) % fills : -1;
    return fillOf(f.name);
  }

  // fillOfName is the number of the color of functions of that name; -1: there is none.
  fillOfName(name: string): number {
    if (this.indexed !== this.namesVersion) {
      this.indexed = this.namesVersion;
      this.byName.clear();
      for (const f of this.funcs) if (f && !this.byName.has(f.name)) this.byName.set(f.name, f);
    }
    return this.byName.get(name)?.fill ?? -1;
  }

  private byName = new Map<string, FuncView>();
  private indexed = -1;

  recolor(by: ColorBy): void {
    this.colorBy = by;
    for (const f of this.funcs) if (f) f.fill = this.colorOf(f);
  }

  // forget drops the data of views, before a new view is requested.
  forget(): void {
    this.data.clear();
    this.views.clear();
  }

  // join takes in processes that are new or changed.
  join(p: Processes): void {
    const { hello } = this;
    if (!hello) return;
    hello.processes ??= [];
    for (const [i, x] of Object.entries(p.changed)) hello.processes[Number(i)] = x;
    this.joined++;
    if (this.colorBy === 'state') this.recolor('state');
  }

  joined = 0; // times that processes joined or changed

  // own is the test of whether a function is the program's own, or that of one of several programs.
  own(): (f: Place) => boolean {
    const key = `${this.joined},${[...this.kinds].join()}`;
    if (this.ownKey === key && this.ownTest) return this.ownTest;
    const { hello } = this;
    const all = hello?.processes?.length ? hello.processes.map((p) => p.exe) : [hello?.process.exe];
    this.ownKey = key;
    this.ownTest = ownCode(this.kinds, new Set(all.filter((x) => x !== undefined)));
    return this.ownTest;
  }

  private ownKey = '';
  private ownTest: ((f: Place) => boolean) | null = null;

  setStatus(s: Status): void {
    this.status = s;
    this.threads.clear();
    this.order = s.threads.map((t) => t.seq);
    for (const t of s.threads) this.threads.set(t.seq, t);
  }

  frame(f: Frame): void {
    this.frames++;
    this.bytes += f.bytes;
    if (f.now > 0) this.sync(f.now);
    if (f.type === GAP) {
      this.gaps++;
      return;
    }
    const v = this.views.get(f.id);
    if (!v) return;
    for (const id of this.views.keys()) if (id < f.id) this.views.delete(id);
    for (const t of f.threads) {
      let d = this.data.get(t.seq);
      if (f.type === VIEW || !d || d.id !== f.id) {
        if (f.type === MORE && d && d.id > f.id) continue;
        d = new ThreadData();
        d.id = f.id;
        d.t0 = v.t0;
        d.t1 = v.follow ? Infinity : v.t1;
        d.bin = v.bin;
        d.lit = v.funcs;
        this.data.set(t.seq, d);
        for (const r of t.rows) this.put(d, r.depth, Row.of(t, r.from, r.to));
      } else {
        for (const r of d.rows) r?.dropOpen();
        for (const r of d.lanes.values()) r.dropOpen();
        for (const r of t.rows) {
          let row = this.row(d, r.depth);
          if (!row) {
            row = new Row(16);
            this.put(d, r.depth, row);
          }
          row.add(t, r.from, r.to, f.bin);
        }
      }
      d.last = t.last;
      d.seen = t.seen;
    }
  }

  row(d: ThreadData, depth: number): Row | undefined {
    return depth >= 0xff00 ? d.lanes.get(depth) : d.rows[depth];
  }

  private put(d: ThreadData, depth: number, r: Row): void {
    if (depth >= 0xff00) d.lanes.set(depth, r);
    else {
      while (d.rows.length < depth) d.rows.push(new Row(0));
      d.rows[depth] = r;
    }
  }

  private sync(now: number): void {
    const at = performance.now();
    const o = now - at * 1e6;
    // The quickest delivery is the truest; forget it slowly, clocks drift.
    const old = this.offset - (at - this.offsetAt) * 1e6 * 0.002;
    if (o > old) this.offset = o;
    else this.offset = old;
    this.offsetAt = at;
  }

  get live(): boolean {
    return !!this.hello?.live && !this.status?.done;
  }

  // edge is the newest time there is to draw: of a live view a moment behind
  // the clock, so that it moves evenly.
  edge(): number {
    const to = this.status?.to ?? 0;
    if (!this.live || this.offset === -Infinity) return to;
    if (!this.up) return this.stood;
    this.stood = Math.max(performance.now() * 1e6 + this.offset - 60e6, 0);
    return this.stood;
  }

  from(): number {
    return this.status?.from ?? 0;
  }
}
