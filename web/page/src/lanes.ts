// Tracks of locks, files and counters, below those of threads: who held each lock and how many waited for it,
// how many threads were in operations of each file, CPUs in use, threads that wait for a CPU, threads without
// samples.

import { fills, theme, type Theme } from './color';
import { Column } from './column';
import { el, h } from './dom';
import { count, dur, lockName, lockKey } from './format';
import type { Link, LockInfo } from './proto';
import type { Band, Range, Spot, Stage, Track, View } from './track';

interface Counter {
  name: string;
  bins: number[];
}
interface LockLane {
  lock: LockInfo;
  total: number;
  most: number;
  waiting: number[];
  holder: number[];
}
// FileLane has mean numbers of threads that were in a file's operations, and the number and the longest, in ns,
// of those that ended.
interface FileLane {
  path: string;
  kind: string;
  process?: number;
  total: number;
  ops: number;
  most: number;
  read: number[];
  write: number[];
  other: number[];
  count: number[];
  longest: number[];
}
interface Reply extends Range {
  counters: Counter[];
  locks: LockLane[];
  more?: number;
  files?: FileLane[];
  more_files?: number;
}

// Lane is a track. Its key is the name of the counter, the address of the lock, or the path of the file.
interface Lane {
  key: string;
  lock?: LockInfo;
  file?: FileLane; // with its sums alone
  total: number;
  y: number;
  h: number;
}
export interface LaneHit {
  lane: Lane;
  t0: number;
  t1: number;
  waiting: number;
  holder: number;
  ops: number; // of a file, that ended
  longest: number; // ns, of those
}

const group = 24; // height of the line that folds them
const heights = { counter: 30, lock: 38, file: 30 };
const held = 14; // height of a lock's holders
const shownLocks = 8;
const shownFiles = 8;
const step = 2; // pixels of a part
const recent = 60e9; // ns of a live recording that decide which locks have a track
const wholeEvery = 5000; // ms between looks at that
const viewEvery = 200; // ms between views of a live recording that is followed

const counters: Record<string, { title: string; unit: string }> = {
  cpu: { title: 'CPUs in use', unit: 'CPUs' },
  runnable: { title: 'Waiting for a CPU', unit: 'threads' },
  lock: { title: 'Waiting for locks and conditions', unit: 'threads' },
  gap: { title: 'Without samples', unit: 'threads' },
};

// fileKey identifies a file's track: equal paths of several processes are different tracks.
function fileKey(f: FileLane): string {
  return `file ${f.process ?? 0} ${f.path || f.kind}`;
}

// most is the largest of some numbers.
function most(ns: number[]): number {
  return ns.reduce((a, b) => Math.max(a, b), 0);
}

// amount is a mean number of threads or CPUs.
function amount(n: number): string {
  return n >= 10 ? count(Math.round(n)) : n.toFixed(n > 0 && n < 0.1 ? 2 : 1).replace(/\.0$/, '');
}

export class Lanes implements Band {
  items: Lane[] = [];
  open = true;
  private whole: Reply | null = null; // says which there are
  private view: Reply | null = null;
  private busy = false;
  private wholeAt = -Infinity;
  private viewAt = -Infinity;
  private failed = 0; // ms: the time of the newest failure
  private y = 0;
  private column = new Column(el('lanes'));
  onLayout = (): void => {};
  onLock = (_addr: string): void => {};
  onFile = (_path: string): void => {};
  onLane = (_: LaneHit, _at: { x: number; y: number } | null): void => {}; // hovered at a point of the window, or clicked

  private readonly conn: Link;

  constructor(private v: Stage) {
    this.conn = v.conn;
  }

  // reset drops all replies, after a connection to another recording.
  reset(): void {
    this.whole = this.view = null;
    this.wholeAt = this.viewAt = -Infinity;
  }

  // place puts the lanes below y and returns the height that they take.
  place(y: number): number {
    this.y = y;
    const w = this.whole;
    this.items = [];
    if (!w) return 0;
    let at = y + group;
    const add = (key: string, total: number, height: number, lock?: LockInfo, file?: FileLane): void => {
      this.items.push({ key, lock, file, total, y: at, h: height });
      at += height;
    };
    if (this.open) {
      for (const c of w.counters) if (c.name === 'cpu' || c.bins.some((b) => b > 0)) add(c.name, most(c.bins), heights.counter);
      for (const l of w.locks.slice(0, shownLocks)) add(lockKey(l.lock), l.total, heights.lock, l.lock);
      for (const f of (w.files ?? []).slice(0, shownFiles)) add(fileKey(f), f.total, heights.file, undefined, f);
    }
    this.labels();
    return at - y;
  }

  private labels(): void {
    const w = this.whole!;
    const more = (w.more ?? 0) + Math.max(0, w.locks.length - shownLocks);
    const moreFiles = (w.more_files ?? 0) + Math.max(0, (w.files?.length ?? 0) - shownFiles);
    const key = JSON.stringify([this.open, this.y, more, moreFiles, this.items.map((i) => [i.key, i.y, Math.round(i.total)])]);
    this.column.show(key, () => [
      {
        y: this.y,
        h: group,
        heads: true,
        nodes: [
          h(
            'button',
            {
              class: 'link',
              'data-key': '',
              'aria-expanded': String(this.open),
              onclick: () => {
                this.open = !this.open;
                this.onLayout();
              },
            },
            `${this.open ? '▾' : '▸'} Counters${w.files?.length ? ', locks and files' : ' and locks'}`,
          ),
          more && this.open ? h('span', { class: 'soft' }, `${count(more)} more under Locks`) : null,
          moreFiles && this.open ? h('span', { class: 'soft' }, `${count(moreFiles)} more under I/O`) : null,
        ],
      },
      ...this.items.map((i) => {
        const { lock, file } = i;
        const name = this.title(i);
        const units = file ? 'threads in its operations' : `at most ${amount(i.total)} ${counters[i.key]?.unit ?? ''}`;
        return {
          y: i.y,
          h: i.h,
          nodes: [
            lock
              ? h(
                  'button',
                  { class: 'link', 'data-key': i.key, title: `${name}: who held it, and where`, onclick: () => this.onLock(lockKey(lock)) },
                  name,
                )
              : file
                ? h(
                    'button',
                    {
                      class: 'link',
                      'data-key': i.key,
                      title: `${file.path || file.kind}: its operations and findings`,
                      onclick: () => this.onFile(file.path),
                    },
                    name,
                  )
                : h('span', null, name),
            h('span', { class: 'sub' }, lock ? 'holder, waiting threads' : units),
          ],
        };
      }),
    ]);
  }

  private title(i: Lane): string {
    if (i.file) return i.file.path.slice(i.file.path.lastIndexOf('/') + 1) || i.file.kind;
    return i.lock ? lockName(i.lock) + (i.lock.process ? ` of ${i.lock.process}` : '') : (counters[i.key]?.title ?? i.key);
  }

  // tracks returns the counters and locks between two heights.
  tracks(from: number, to: number): Track[] {
    return this.items
      .filter((i) => i.y < to && i.y + i.h > from)
      .map((i) => ({
        kind: i.lock ? 'lock' : i.file ? 'file' : 'counter',
        key: i.key,
        title: this.title(i),
        y: i.y,
        h: i.h,
        spot: (x, y) => this.spot(x, y),
      }));
  }

  private spot(x: number, y: number): Spot | null {
    const hit = this.hit(x, y - this.v.top);
    return (
      hit && {
        lock: hit.lane.lock,
        holder: hit.holder,
        hover: (left, top) => {
          this.v.onHover(null, 0, 0);
          this.onLane(hit, { x: left, y: top });
        },
        click: () => this.onLane(hit, null),
      }
    );
  }

  request(): boolean {
    this.query();
    return false;
  }

  // query sends one if the replies do not cover the view in its resolution.
  private query(): void {
    const v = this.v;
    const now = performance.now();
    if (!this.conn.up || this.busy || !v.model.status?.to || now - this.failed < 1000) return;
    const live = v.model.live;
    const done = !!v.model.status.done;
    const to = v.model.edge();
    const n = Math.ceil(v.width / step);
    if (!this.whole || (this.whole.t1 < to && now - this.wholeAt > (done ? 0 : wholeEvery))) {
      this.wholeAt = now;
      const t0 = live ? Math.max(v.model.from(), to - recent) : v.model.from();
      this.ask(t0, to, n, (r) => {
        // A reply from before the end is incomplete.
        this.whole = { ...r, t1: done ? Infinity : r.t1 };
        this.onLayout();
      });
      return;
    }
    if (!this.items.length || this.y - v.top > v.height || this.y + group + 400 < v.top) return;
    const bin = (v.span / v.width) * step;
    const r = this.view;
    const [t0, t1] = [Math.max(v.t0, v.model.from()), Math.min(v.t1, to)];
    if (t1 <= t0) return;
    const has = r && (r.t1 - r.t0) / (r.counters[0]?.bins.length || 1);
    const fits =
      r && has && has < bin * 1.5 && has > bin / 3 && r.t0 <= t0 + bin && (r.t1 >= t1 - bin || (v.follow && now - this.viewAt < viewEvery));
    if (fits) return;
    this.viewAt = now;
    const from = Math.max(v.t0 - v.span / 2, v.model.from());
    const until = Math.min(v.t1 + v.span / 2, to);
    this.ask(from, until, Math.ceil((until - from) / bin), (x) => (this.view = x));
  }

  private ask(t0: number, t1: number, n: number, take: (r: Reply) => void): void {
    this.busy = true;
    this.conn.ask<Reply>('lanes', { t0: Math.round(t0), t1: Math.round(Math.max(t1, t0 + 1)), n: Math.max(1, Math.min(n, 8192)) }).then(
      (r) => {
        this.busy = false;
        take(r);
        this.v.wake();
      },
      () => {
        this.busy = false;
        this.failed = performance.now();
      },
    );
  }

  // settled reports whether no reply is pending.
  settled(): boolean {
    return !!this.whole && !this.busy;
  }

  hit(x: number, y: number): LaneHit | null {
    const Y = y + this.v.top;
    const lane = this.items.find((i) => Y >= i.y && Y < i.y + i.h);
    const r = this.view;
    if (!lane || !r) return null;
    const t = this.v.t0 + (x / this.v.width) * this.v.span;
    const file = lane.file && r.files?.find((f) => fileKey(f) === lane.key);
    const bins = lane.lock
      ? r.locks.find((l) => lockKey(l.lock) === lane.key)?.waiting
      : (file?.read.map((x, k) => x + file.write[k]! + file.other[k]!) ?? r.counters.find((c) => c.name === lane.key)?.bins);
    if (!bins || t < r.t0 || t >= r.t1) return null;
    const width = (r.t1 - r.t0) / bins.length;
    const k = Math.min(bins.length - 1, Math.floor((t - r.t0) / width));
    const holder = lane.lock ? (r.locks.find((l) => lockKey(l.lock) === lane.key)?.holder[k] ?? 0) : 0;
    return {
      lane,
      t0: r.t0 + k * width,
      t1: r.t0 + (k + 1) * width,
      waiting: bins[k] ?? 0,
      holder,
      ops: file?.count[k] ?? 0,
      longest: file?.longest[k] ?? 0,
    };
  }

  // text describes a place in lines.
  text(x: LaneHit): string[] {
    const { lock, file, key } = x.lane;
    const c = counters[key];
    if (file) {
      const ended = x.ops ? `${count(x.ops)} operation${x.ops === 1 ? '' : 's'} ended, the longest of ${dur(x.longest)}` : '';
      return [file.path || file.kind, `${amount(x.waiting)} threads in its operations`, ended].filter((s) => s);
    }
    if (!lock) return [c?.title ?? key, `${amount(x.waiting)} ${c?.unit ?? ''}`];
    if (!x.waiting) return [lockName(lock), 'no thread waits for it'];
    const who = x.holder ? `held by ${this.thread(x.holder)} (${x.holder}); click to go there` : 'its holder is not known';
    return [lockName(lock), `${amount(x.waiting)} waiting thread${x.waiting === 1 ? '' : 's'}`, who];
  }

  private thread(tid: number): string {
    for (const t of this.v.model.threads.values()) if (t.tid === tid) return t.name;
    return 'thread';
  }

  draw(g: CanvasRenderingContext2D): void {
    const v = this.v;
    const c = theme();
    const top = this.y - v.top;
    if (!this.whole || top > v.height) return;
    g.fillStyle = c.panel;
    g.fillRect(0, top, v.width, group);
    g.textBaseline = 'middle';
    for (const i of this.items) {
      const y = i.y - v.top;
      if (y > v.height || y + i.h < 0) continue;
      g.fillStyle = c.line;
      g.fillRect(0, Math.round(y + i.h) - 1, v.width, 1);
      const r = this.view;
      if (!r) continue;
      const l = i.lock && r.locks.find((x) => lockKey(x.lock) === i.key);
      if (l) {
        this.holders(g, c, r, l, y + 2);
        chart(g, v, r, l.waiting, Math.max(1, l.most), y + held + 3, i.h - held - 5, c.parts.lock);
      } else if (i.file) {
        const f = r.files?.find((x) => fileKey(x) === i.key);
        if (f) files(g, v, r, f, y + 3, i.h - 5, c);
      } else if (!i.lock) {
        const bins = r.counters.find((x) => x.name === i.key)?.bins ?? [];
        const color = { cpu: c.parts.cpu, runnable: c.parts.runnable, lock: c.parts.lock }[i.key] ?? c.gap;
        chart(g, v, r, bins, Math.max(i.total, most(bins)) || 1, y + 3, i.h - 5, color);
      }
    }
  }

  // holders draws who held a lock, as far as waiting threads saw.
  private holders(g: CanvasRenderingContext2D, c: Theme, r: Reply, l: LockLane, y: number): void {
    const v = this.v;
    const width = (r.t1 - r.t0) / l.holder.length;
    for (let k = 0; k < l.holder.length; ) {
      const tid = l.holder[k] ?? 0;
      let n = k + 1;
      while (n < l.holder.length && l.holder[n] === tid && (tid || l.waiting[n]! > 0 === l.waiting[k]! > 0)) n++;
      const a = Math.max(v.x(r.t0 + k * width), 0);
      const b = Math.min(v.x(r.t0 + n * width), v.width);
      const waits = l.waiting[k]! > 0;
      k = n;
      if (b <= a || (!tid && !waits)) continue;
      g.fillStyle = tid ? c.fills[tid % fills]! : c.park;
      g.fillRect(a, y, Math.max(b - a, 0.75), held - 1);
      const name = tid ? this.thread(tid) : '';
      if (name && b - a > 24 && g.measureText(name).width < b - a - 6) {
        g.fillStyle = c.onFill;
        g.fillText(name, a + 3, y + held / 2);
      }
    }
  }
}

// files draws threads in a file's operations: reads at the bottom, then writes, then syncs and others, which
// are the darkest.
function files(g: CanvasRenderingContext2D, v: View, r: Reply, f: FileLane, y: number, height: number, c: Theme): void {
  const max = Math.max(1, f.most);
  const base = f.read.map(() => 0);
  for (const [bins, alpha] of [
    [f.read, 0.4],
    [f.write, 0.7],
    [f.other, 1],
  ] as const) {
    g.globalAlpha = alpha;
    chart(g, v, r, bins, max, y, height, c.parts.io, base);
  }
  g.globalAlpha = 1;
}

// chart draws numbers up to max as columns, on top of base, to which it adds them.
function chart(
  g: CanvasRenderingContext2D,
  v: View,
  r: Reply,
  bins: number[],
  max: number,
  y: number,
  height: number,
  color: string,
  base?: number[],
): void {
  const width = (r.t1 - r.t0) / bins.length;
  g.fillStyle = color;
  for (let k = Math.max(0, Math.floor((v.t0 - r.t0) / width)); k < bins.length; k++) {
    const a = v.x(r.t0 + k * width);
    if (a > v.width) return;
    const n = bins[k]!;
    if (!(n > 0)) continue;
    const under = ((base?.[k] ?? 0) / max) * height;
    const tall = Math.max(1, (n / max) * height);
    if (base) base[k]! += n;
    g.fillRect(a, y + height - under - tall, Math.max(v.x(r.t0 + (k + 1) * width) - a, 0.75), tall);
  }
}
