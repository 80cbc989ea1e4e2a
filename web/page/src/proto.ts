// The server's interface, version 1: see docs/web-api.md.

import { socket, take } from './early';

export interface Func {
  name: string;
  file?: string;
  line?: number;
  module?: string;
  kind?: string;
}
export interface LockInfo {
  addr: string;
  holder?: number;
  by?: string;
  name?: string;
  wait?: string;
  kind?: string;
  process?: number; // PID of the process whose address it is, in a recording of several
}
export interface Format {
  name: string;
  title: string;
  about?: string;
  ext: string;
  use?: string;
}
export interface Hello {
  op: 'hello';
  version: number;
  program?: string;
  live: boolean;
  base: string;
  wall: number;
  process: {
    pid: number;
    comm: string;
    exe: string;
    cmdline: string[] | null;
    arch: string;
    host: string;
    kernel: string;
    cpus: number;
    interval_ns: number;
  };
  control: string[];
  formats: Format[];
  compare?: string;
  notes: string[];
  first_lane: number;
  speedscope: boolean;
  recorders?: boolean;
  processes?: ProcessInfo[]; // of a recording of several
}
// ProcessInfo is one of several processes of a recording.
export interface ProcessInfo {
  pid: number;
  ppid?: number;
  comm: string;
  exe?: string;
  cmdline?: string[];
  ended?: boolean; // while others were recorded
  exit?: string; // how it ended
}
// Processes are those that joined a live recording, or changed, by index.
export interface Processes {
  changed: Record<string, ProcessInfo>;
}
// ProcessSums is how the threads of a process spent a range, in ns.
export interface ProcessSums {
  process: number; // index in Hello.processes
  threads: number;
  cpu: number;
  runnable: number;
  lock: number;
  io: number;
  sleep: number;
  other: number;
  idle: number;
  stopped: number;
}
export interface ThreadInfo {
  process?: number; // index in Hello.processes
  seq: number;
  tid: number;
  ns_tid?: number;
  name: string;
  main?: boolean;
  cpu: number;
  samples: number;
  depth: number;
  ended?: boolean;
  idle?: boolean;
  state: string;
  call: number;
  last: number;
  dropped?: number;
}
export interface RecStatus {
  paused: boolean;
  interval_ns: number;
  samples: number;
  lost: number;
  losses?: string;
  pause_p50: number;
  pause_p99: number;
  overhead: number;
  threads: string;
}
export interface Status {
  op: 'status';
  from: number;
  to: number;
  done: boolean;
  reason?: string;
  error?: string;
  held: number;
  dropped: number;
  in_file?: number;
  no_file?: string;
  threads: ThreadInfo[];
  status?: RecStatus;
  kept?: string;
}
export interface Names {
  op: 'names';
  from: number;
  funcs: Func[] | null;
  locks_from?: number;
  locks?: LockInfo[];
}
export interface Where {
  thread: number;
  depth: number;
  start: number;
}
export interface CallInfo {
  depth: number;
  func: number;
  name: string;
  kind?: string;
  module?: string;
  file?: string;
  line?: number;
  addr?: string;
  inlined?: boolean;
  inner?: string[];
  start: number;
  end: number;
  running?: boolean;
  samples: number;
  cpu: number;
  wait: number;
  self: number;
}
export interface LaneInfo {
  start: number;
  end: number;
  state?: string;
  call?: number;
  wait?: string;
  lock?: LockInfo;
  why?: string;
}
export interface Detail {
  thread: number;
  at: number;
  interval: number;
  calls: CallInfo[];
  state?: LaneInfo;
  lock?: LaneInfo;
  gap?: LaneInfo;
}
export interface Calls {
  count: number;
  total: number;
  min: number;
  median: number;
  max: number;
  hist: number[];
  prev: Where | null;
  next: Where | null;
  longest: Where | null;
}
export interface Hits {
  count: number;
  total: number;
  first: Where | null;
  last: Where | null;
  prev: Where | null;
  next: Where | null;
  funcs: Record<string, number>;
}
export interface Loads {
  t0: number;
  t1: number;
  bins: number[];
  share: { seq: number; cpu: number }[] | null;
}
export interface Tree {
  parent: number[];
  func: number[];
  count: number[];
  samples: number[];
  wall: number[];
  cpu: number[];
  wait: number[];
  folded: number;
  names?: Func[];
}
export interface WaitRow {
  thread: number;
  kind: string;
  state?: string;
  call: number;
  wait?: string;
  lock?: LockInfo;
  count: number;
  total: number;
  max: number;
  at: number;
}

export interface FrameRow {
  depth: number;
  from: number;
  to: number;
}
export interface FrameThread {
  seq: number;
  lost: number;
  last: number;
  seen: number;
  rows: FrameRow[];
  start: Float64Array;
  end: Float64Array;
  busy: Float32Array;
  value: Uint32Array;
  count: Uint32Array;
}
export interface Frame {
  type: number;
  id: number;
  now: number;
  bin: number;
  threads: FrameThread[];
  bytes: number;
}
export const VIEW = 1,
  MORE = 2,
  GAP = 3;
export const STATES = 0xffff,
  LOCKS = 0xfffe,
  PAUSES = 0xfffd,
  GAPS = 0xfffc,
  LANES = 0xff00;

export function decode(b: ArrayBuffer): Frame {
  const v = new DataView(b);
  if (b.byteLength < 32 || v.getUint32(0, true) !== 0x31564c53) throw new Error('not a frame of sliver.v1');
  const f: Frame = {
    type: v.getUint8(4),
    id: v.getUint32(8, true),
    now: v.getFloat64(16, true),
    bin: v.getFloat64(24, true),
    threads: [],
    bytes: b.byteLength,
  };
  let off = 32;
  for (let i = v.getUint16(6, true); i > 0; i--) {
    const n = v.getUint32(off + 4, true);
    const m = v.getUint32(off + 8, true);
    const t: FrameThread = {
      seq: v.getUint32(off, true),
      lost: v.getUint32(off + 12, true),
      last: v.getFloat64(off + 16, true),
      seen: v.getFloat64(off + 24, true),
      rows: [],
      start: new Float64Array(b, off + 32, n),
      end: new Float64Array(b, off + 32 + 8 * n, n),
      busy: new Float32Array(b, off + 32 + 16 * n, n),
      value: new Uint32Array(b, off + 32 + 20 * n, n),
      count: new Uint32Array(b, off + 32 + 24 * n, n),
    };
    let at = off + 32 + 28 * n;
    let k = 0;
    for (let j = 0; j < m; j++, at += 8) {
      const l = v.getUint32(at + 4, true);
      t.rows.push({ depth: v.getUint32(at, true), from: k, to: k + l });
      k += l;
    }
    off = (at + 7) & ~7;
    f.threads.push(t);
  }
  return f;
}

export interface Handlers {
  hello(h: Hello): void;
  processes(p: Processes): void;
  status(s: Status): void;
  names(n: Names): void;
  frame(f: Frame): void;
  state(up: boolean, problem: string): void;
}

// Link is where the page's data come from: a server, or the page itself.
export interface Link {
  up: boolean;
  kinds: string; // of the calls that everything is about; '' is all of them
  runtime: boolean; // with the native code of interpreters above the functions that they run
  readonly sifts: boolean; // kinds may be chosen
  readonly token: string;
  open(): void;
  view(v: { t0: number; t1: number; bin: number; threads: number[]; follow: boolean; funcs?: number[] }): number;
  ask<T>(op: string, args: Record<string, unknown>): Promise<T>;
  get<T>(path: string): Promise<T>;
  post<T>(path: string, body: unknown): Promise<T>;
}

const goingAway = 1001; // RFC 6455, 7.4.1: of a server that ends

// Conn keeps a connection up and asks questions over it.
export class Conn implements Link {
  up = false;
  readonly sifts = true;
  private met = false; // there has been a connection
  private ended = false; // the server said that it ends
  kinds = '';
  runtime = false;
  private ws: WebSocket | null = null;
  private next = 1;
  private waiting = new Map<number, { ok: (v: unknown) => void; bad: (e: Error) => void }>();
  private tries = 0;
  private timer = 0;

  constructor(
    readonly token: string,
    private h: Handlers,
  ) {}

  open(): void {
    clearTimeout(this.timer);
    const met = take();
    const ws = met?.ws ?? socket(this.token);
    this.ws = ws;
    ws.onmessage = (e) => {
      if (typeof e.data === 'string') this.text(JSON.parse(e.data));
      else this.h.frame(decode(e.data as ArrayBuffer));
    };
    ws.onclose = (e) => void this.closed(e.code);
    for (const e of met?.came ?? []) ws.onmessage(e);
  }

  private async closed(code: number): Promise<void> {
    this.up = false;
    this.ended ||= code === goingAway;
    for (const w of this.waiting.values()) w.bad(new Error('the connection was lost'));
    this.waiting.clear();
    let why = this.ended
      ? 'sliver has ended. What it sent stays here.'
      : this.met
        ? 'Connection lost. Trying again…'
        : 'No connection to sliver. Trying again…';
    let again = true;
    // A websocket does not say why it was refused; plain HTTP does.
    try {
      const r = await fetch('/api/info', { headers: { 'X-Sliver-Token': this.token } });
      if (r.status === 401 || r.status === 403) {
        why = this.ended
          ? 'That sliver has ended, and another one is here now. Open the address that it printed.'
          : 'The token in this address is missing or wrong. Open the address that sliver printed.';
        again = false;
      } else if (!r.ok) why = ((await r.json()) as { error?: string }).error ?? why;
    } catch {
      /* the server is away */
    }
    this.h.state(false, why);
    if (again) this.timer = window.setTimeout(() => this.open(), Math.min(5000, 250 * 2 ** Math.min(this.tries++, 5)));
  }

  private text(m: { op: string; id?: number; value?: unknown; error?: string }): void {
    switch (m.op) {
      case 'hello':
        this.up = this.met = true;
        this.ended = false;
        this.tries = 0;
        this.h.state(true, '');
        this.h.hello(m as unknown as Hello);
        return;
      case 'processes':
        this.h.processes(m as unknown as Processes);
        return;
      case 'status':
        this.h.status(m as unknown as Status);
        return;
      case 'names':
        this.h.names(m as unknown as Names);
        return;
      case 'reply':
      case 'error': {
        const w = this.waiting.get(m.id!);
        this.waiting.delete(m.id!);
        if (m.op === 'reply') w?.ok(m.value);
        else w?.bad(new Error(m.error));
      }
    }
  }

  // only is the choice of calls in words of the server.
  private get only(): string | undefined {
    if (this.runtime) return this.kinds || undefined;
    return this.kinds ? `${this.kinds},no-runtime` : 'no-runtime';
  }

  // view asks for frames; there is one view at a time.
  view(v: { t0: number; t1: number; bin: number; threads: number[]; follow: boolean; funcs?: number[] }): number {
    const id = this.next++;
    this.ws?.send(JSON.stringify({ op: 'view', id, kinds: this.only, ...v }));
    return id;
  }

  ask<T>(op: string, args: Record<string, unknown>): Promise<T> {
    if (!this.up || this.ws?.readyState !== WebSocket.OPEN) return Promise.reject(new Error('no connection'));
    const id = this.next++;
    return new Promise<T>((ok, bad) => {
      this.waiting.set(id, { ok: ok as (v: unknown) => void, bad });
      this.ws!.send(JSON.stringify({ op, id, kinds: this.only, ...args }));
    });
  }

  async get<T>(path: string): Promise<T> {
    const r = await fetch(path, { headers: { 'X-Sliver-Token': this.token } });
    const v = (await r.json()) as T & { error?: string };
    if (!r.ok) throw new Error(v.error ?? r.statusText);
    return v;
  }

  async post<T>(path: string, body: unknown): Promise<T> {
    const r = await fetch(path, {
      method: 'POST',
      headers: { 'X-Sliver-Token': this.token, 'Content-Type': 'application/json' },
      body: JSON.stringify(body),
    });
    const v = (await r.json()) as T & { error?: string };
    if (!r.ok) throw new Error(v.error ?? r.statusText);
    return v;
  }
}
