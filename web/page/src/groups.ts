// Groups of tracks: the threads of a process, of a recording of several, or of a pool, whose names differ in
// numbers alone. A group has a line of its own, which folds its tracks.

import type { Part } from './analysis';
import { theme } from './color';
import { count, dur, percent } from './format';
import type { Model } from './model';
import type { ProcessInfo, ProcessSums } from './proto';
import type { View } from './track';

// Group is a group with its line at y.
export interface Group {
  role: string; // identifies it
  title: string;
  process?: number; // index of the process; undefined: a pool
  seqs: number[];
  y: number;
  open: boolean;
}

export const groupHeight = 24;
const many = 8; // threads of a group that begins folded
const openProcesses = 3; // that used most; the others begin folded
const reasons = { lock: 'locks and conditions', io: 'I/O', sleep: 'sleep', runnable: 'for a CPU' };
const barWidth = 90; // px of how a process spent its time

// waited is how long the threads of a process waited for something.
function waited(s: ProcessSums): number {
  return s.runnable + s.lock + s.io + s.sleep + s.other + s.stopped;
}

// processTitle names a process.
function processTitle(p?: ProcessInfo): string {
  return `${p?.comm || 'process'} (${p?.pid})${p?.ended ? ' · ended' : ''}`;
}

// roleOf is the role that a thread has in telemetry, too: main, or its name with each number replaced by *.
export function roleOf(name: string, main = false): string {
  const role = name.replace(/[0-9]+/g, '*');
  return main ? 'main' : role === 'main' || role === 'other' ? `${role}*` : role;
}

export class Groups {
  on = false; // by pool
  by: 'cpu' | 'wait' = 'cpu'; // order of processes
  sums: ProcessSums[] = []; // of processes, over the whole recording
  heads: Group[] = []; // on the screen or beside it
  // changed holds the roles whose groups are not as at first: those of many threads folded, others open.
  readonly changed = new Set<string>();

  constructor(private model: Model) {}

  // arrange puts the threads of a role behind the first of them, and a group before those of a role with two
  // threads or more. Threads that are kept apart, as pinned ones, are in no group. Those of folded groups are left out.
  // still keeps the processes where they are; new ones come last.
  arrange(seqs: number[], apart: number[], still = false): (Group | number)[] {
    this.heads = [];
    if (this.processes) return this.byProcess(seqs, apart, still);
    if (!this.on) return seqs;
    const roles = new Map<string, number[]>();
    for (const seq of seqs) {
      const t = this.model.threads.get(seq)!;
      const role = apart.includes(seq) ? `\0${seq}` : roleOf(t.name, t.main);
      const all = roles.get(role);
      if (all) all.push(seq);
      else roles.set(role, [seq]);
    }
    const out: (Group | number)[] = [];
    for (const [role, all] of roles) {
      if (all.length < 2) {
        out.push(...all);
        continue;
      }
      const g: Group = { role, title: role || 'thread', seqs: all, y: 0, open: all.length <= many !== this.changed.has(role) };
      this.heads.push(g);
      out.push(g, ...(g.open ? all : []));
    }
    return out;
  }

  // processes reports whether the groups are processes. A live recording of several has them from the first on.
  get processes(): boolean {
    const { hello } = this.model;
    return (hello?.processes?.length ?? 0) > (hello?.live ? 0 : 1);
  }

  // byProcess puts a group before the threads of each process, in the order of what the processes used or waited.
  private byProcess(seqs: number[], apart: number[], still: boolean): (Group | number)[] {
    const of = new Map<number, number[]>();
    for (const seq of seqs) {
      if (apart.includes(seq)) continue;
      const p = this.model.threads.get(seq)!.process ?? 0;
      const all = of.get(p);
      if (all) all.push(seq);
      else of.set(p, [seq]);
    }
    const sums = new Map(this.sums.map((s) => [s.process, s]));
    const value = (p: number, by: 'cpu' | 'wait'): number => {
      const s = sums.get(p);
      return !s ? 0 : by === 'cpu' ? s.cpu : waited(s);
    };
    const { live } = this.model;
    const ended = (p: number): number => (live && this.model.hello!.processes![p]?.ended ? 1 : 0);
    // Of a live recording those that run come first, and of those that ended the newest.
    const ranked = (by: 'cpu' | 'wait'): number[] =>
      [...of.keys()].sort(
        (a, b) => ended(a) - ended(b) || value(b, by) - value(a, by) || (ended(a) ? this.newest(of, b) - this.newest(of, a) : 0) || a - b,
      );
    // Whatever the order is: a change of it folds nothing.
    if (!still || !this.first.size) this.first = new Set(ranked('cpu').slice(0, openProcesses));
    const before = new Map(still ? this.placed.map((p, i) => [p, i]) : []);
    const order = ranked(this.by).sort((a, b) => (before.get(a) ?? Infinity) - (before.get(b) ?? Infinity) || 0);
    this.placed = order;
    const out: (Group | number)[] = seqs.filter((s) => apart.includes(s));
    const roles = new Set<string>();
    for (const p of order) {
      const info = this.model.hello!.processes![p];
      let role = `process ${info?.pid}`;
      if (roles.has(role)) role += `/${p}`; // a PID that was used again
      roles.add(role);
      const all = of.get(p)!;
      const open = this.first.has(p) !== this.changed.has(role);
      const g: Group = { role, title: processTitle(info), process: p, seqs: all, y: 0, open };
      this.heads.push(g);
      out.push(g, ...(open ? all : []));
    }
    return out;
  }

  // key differs if the groups may.
  key(): string {
    if (this.processes) return String(this.model.joined);
    return this.on ? this.model.order.map((s) => roleOf(this.model.threads.get(s)!.name)).join() : '';
  }

  private first = new Set<number>(); // processes that begin open
  private placed: number[] = []; // processes in the order of their groups

  // newest is the time of the last sample of a process.
  private newest(of: Map<number, number[]>, p: number): number {
    return Math.max(...of.get(p)!.map((s) => this.model.threads.get(s)!.last));
  }

  // turn opens or folds a group.
  turn(g: Group): void {
    if (!this.changed.delete(g.role)) this.changed.add(g.role);
  }

  // uncover opens the group that hides a thread, and reports whether there is one.
  uncover(seq: number): boolean {
    const g = this.heads.find((x) => !x.open && x.seqs.includes(seq));
    if (g) this.turn(g);
    return !!g;
  }

  // text says what the threads of a group do in the time on the screen.
  text(g: Group): string {
    const s = this.sums.find((x) => x.process === g.process);
    if (s) return this.processText(s);
    const shares = g.seqs.map((s) => this.model.share.get(s)).filter((x) => x !== undefined);
    const cpu = shares.reduce((a, b) => a + b, 0);
    return [
      `${count(g.seqs.length)} thread${g.seqs.length === 1 ? '' : 's'}`,
      shares.length ? `CPU ${percent(cpu)}${cpu >= 0.01 && g.seqs.length > 1 ? `, at most ${percent(Math.max(...shares))} each` : ''}` : '',
    ]
      .filter((x) => x)
      .join(' · ');
  }

  // processText says how a process spent its time.
  private processText(s: ProcessSums): string {
    const why = (['lock', 'io', 'sleep', 'runnable'] as const).filter((k) => s[k] > 0).map((k) => `${reasons[k]} ${dur(s[k])}`);
    return [
      `${count(s.threads)} thread${s.threads === 1 ? '' : 's'}`,
      `CPU ${dur(s.cpu)}`,
      waited(s) > 0 ? `waited ${dur(waited(s))}${why.length ? ` (${why.join(', ')})` : ''}` : '',
      s.idle > 0 ? `idle ${dur(s.idle)}` : '',
    ]
      .filter((x) => x)
      .join(' · ');
  }

  // bar draws how a process spent its time, and returns where it ends.
  private bar(g: CanvasRenderingContext2D, s: ProcessSums, y: number): number {
    const c = theme();
    const parts: Part[] = ['cpu', 'runnable', 'lock', 'io', 'sleep', 'other', 'idle'];
    const all = parts.reduce((a, k) => a + s[k as keyof ProcessSums], 0) || 1;
    let x = 6;
    for (const k of parts) {
      const w = (barWidth * s[k as keyof ProcessSums]) / all;
      g.fillStyle = c.parts[k];
      g.fillRect(x, y + 7, w, 10);
      x += w;
    }
    return 6 + barWidth;
  }

  draw(g: CanvasRenderingContext2D, v: View): void {
    const c = theme();
    for (const x of this.heads) {
      const y = x.y - v.top;
      if (y > v.height || y + groupHeight < 0) continue;
      g.fillStyle = c.panel;
      g.fillRect(0, y, v.width, groupHeight - 1);
      g.fillStyle = c.line;
      g.fillRect(0, y + groupHeight - 1, v.width, 1);
      const s = this.sums.find((p) => p.process === x.process);
      const left = s ? this.bar(g, s, y) : 0;
      g.fillStyle = c.soft;
      g.textBaseline = 'middle';
      g.fillText(this.text(x), left + 6, y + groupHeight / 2);
    }
  }
}
