// The timeline: the time and the bands of tracks that are shown, and how they move.

import { Between } from './between';
import { reducedMotion } from './color';
import { el, fit } from './dom';
import { drawAxis } from './draw';
import { Notes } from './flags';
import { Lanes } from './lanes';
import type { Mark } from './marks';
import type { Model } from './model';
import { interpreted } from './own';
import type { Link, Where } from './proto';
import { TaskGroups } from './taskgroups';
import type { TaskAt } from './tasks';
import { Threads } from './threads';
import { type Arrow, type Band, HEAD, type Hit, type Range, type Spot, type Stage, type ThreadRows, type Track } from './track';

// Gestures say what the pointer does: drag selects and the wheel scrolls, as in Perfetto, or drag moves
// and the wheel zooms, as on a map.
export type Gestures = 'perfetto' | 'map';

export const MINSPAN = 50;

export class Timeline implements Stage {
  t0 = 0;
  t1 = 1e9;
  follow = false;
  frozen = false;
  readonly threads: Threads;
  readonly tasks: TaskGroups; // below those
  readonly lanes: Lanes; // below those
  readonly notes: Notes; // across all
  private readonly bands: Band[]; // from top to bottom
  task: TaskAt | null = null; // selected
  chosen = new Set<number>();

  // wholeProcesses returns the processes, of several, all of whose threads are chosen.
  wholeProcesses(): Set<number> {
    const out = new Set<number>();
    if (!this.chosen.size || !this.model.hello?.processes) return out;
    const { threads } = this.model;
    for (const seq of this.chosen) out.add(threads.get(seq)?.process ?? 0);
    for (const t of threads.values()) if (!this.chosen.has(t.seq)) out.delete(t.process ?? 0);
    this.known = threads.size;
    return out;
  }

  private known = 0; // threads when wholeProcesses was called

  // chooseNew chooses the threads that came since, of those processes.
  chooseNew(whole: Set<number>): void {
    const { threads } = this.model;
    if (!whole.size || threads.size === this.known) return;
    for (const t of threads.values()) if (whole.has(t.process ?? 0)) this.chosen.add(t.seq);
  }

  hover: Hit | null = null;
  selected: Where | null = null;
  range: Range | null = null;
  marks: Mark[] = [];
  hits: Uint8Array | null = null;
  lit: number[] | undefined; // functions that are searched for
  hideHits = false;
  selectMode = false;
  gestures: Gestures = 'perfetto';
  width = 100;
  height = 100;
  top = 0; // scroll
  frames: number[] = []; // ms between the last frames
  readonly between: Between;
  arrows: Arrow[] = []; // as drawn last
  mark: { t0: number; t1: number; seq: number } | null = null; // what a row of a table showed last
  onMoved = (): void => {};
  onFollowed = (): void => {}; // ten times a second while the newest edge is followed
  onLayout = (): void => {};
  onScroll = (): void => {};
  onHover = (_: Hit | null, _x: number, _y: number): void => {};
  onSelect = (_: Hit | null): void => {};
  onRange = (_: Range | null, _done: boolean): void => {};

  private goal: Range | null = null;
  private dirty = true;
  private running = false;
  private lastFrame = 0;
  private followed = 0;
  private calls = el<HTMLCanvasElement>('calls');
  private axis = el<HTMLCanvasElement>('axis');
  private scroller = el('tracks');
  private space = el('space');
  private keys = new Set<string>();

  constructor(
    readonly model: Model,
    readonly conn: Link,
  ) {
    this.threads = new Threads(this);
    this.tasks = new TaskGroups(this);
    this.tasks.onLayout = () => this.layout();
    this.lanes = new Lanes(this);
    this.lanes.onLayout = () => this.layout();
    this.notes = new Notes(this);
    this.between = new Between(this);
    this.bands = [this.threads, this.tasks, this.lanes, this.notes];
    new ResizeObserver(() => this.resize()).observe(this.scroller);
    this.scroller.addEventListener('scroll', () => {
      this.top = this.scroller.scrollTop;
      this.onScroll();
      this.wake();
    });
    this.resize();
  }

  get span(): number {
    return this.t1 - this.t0;
  }

  x(t: number): number {
    return ((t - this.t0) / this.span) * this.width;
  }

  time(x: number): number {
    return this.t0 + (x / this.width) * this.span;
  }

  resize(): void {
    const label = parseFloat(getComputedStyle(document.documentElement).getPropertyValue('--label')) || 200;
    this.width = Math.max(50, this.scroller.clientWidth - label);
    this.height = this.scroller.clientHeight;
    if (this.threads.resized()) this.layout();
    this.wake();
  }

  // layout places the tracks.
  layout(): void {
    let y = 0;
    for (const b of this.bands) y += b.place(y);
    this.space.style.height = `${Math.max(y + 60, this.height)}px`;
    this.onLayout();
    this.wake();
  }

  // shown are the tracks of all kinds on the screen.
  shown(): Track[] {
    return this.bands.flatMap((b) => b.tracks(this.top, this.top + this.height));
  }

  // at is the track at y of the canvas.
  at(y: number): Track | undefined {
    return this.on(y + this.top);
  }

  // on is the track at y of the list of all of them.
  on(y: number): Track | undefined {
    for (const b of this.bands) {
      const t = b.tracks(y, y + 1).find((k) => y >= k.y && y < k.y + k.h);
      if (t) return t;
    }
    return undefined;
  }

  // spot returns the spot at a point of the canvas.
  spot(x: number, y: number): Spot | null {
    return this.at(y)?.spot(x, y + this.top) ?? null;
  }

  get tracks(): ThreadRows[] {
    return this.threads.list;
  }

  track(seq: number): ThreadRows | undefined {
    return this.threads.track(seq);
  }

  rowY(t: ThreadRows, depth: number): number {
    return this.threads.rowY(t, depth);
  }

  near(w: Where): Hit | null {
    return this.threads.near(w);
  }

  // sift shows calls of some kinds alone, '' all; runtime: with the native code of interpreters. It reports
  // whether that changes anything.
  sift(kinds: string, runtime: boolean): boolean {
    const { conn } = this;
    const same = kinds === conn.kinds && (runtime === conn.runtime || !conn.sifts || !interpreted(this.model.kinds));
    conn.kinds = kinds;
    conn.runtime = runtime;
    if (same) return false;
    this.model.forget();
    this.threads.forget();
    this.renew();
    this.layout();
    return true;
  }

  bounds(): Range {
    const t0 = this.model.from();
    return { t0, t1: Math.max(this.model.edge(), t0 + 1e6) };
  }

  // show moves the view; smoothly unless at once.
  show(t0: number, t1: number, at_once = false): void {
    const b = this.bounds();
    let span = Math.max(t1 - t0, MINSPAN);
    span = Math.min(span, (b.t1 - b.t0) * 3 + 1e6);
    const mid = (t0 + t1) / 2;
    t0 = mid - span / 2;
    // The recording never leaves the screen.
    t0 = Math.min(Math.max(t0, b.t0 - span * 0.9), b.t1 - span * 0.1);
    if (at_once || reducedMotion()) {
      this.goal = null;
      this.t0 = t0;
      this.t1 = t0 + span;
      this.onMoved();
    } else this.goal = { t0, t1: t0 + span };
    this.wake();
  }

  target(): Range {
    return this.goal ?? { t0: this.t0, t1: this.t1 };
  }

  zoom(factor: number, x = this.width / 2, at_once = false): void {
    const g = this.target();
    const span = g.t1 - g.t0;
    if (this.follow) {
      // The newest edge stays where it is.
      const s = Math.min(Math.max(span * factor, 1e5), 600e9);
      this.goal = null;
      this.t1 = this.t0 + s;
      this.stickToEdge();
      this.wake();
      return;
    }
    const at = g.t0 + (x / this.width) * span;
    this.show(at - (at - g.t0) * factor, at + (g.t1 - at) * factor, at_once);
  }

  pan(share: number, at_once = false): void {
    const g = this.target();
    const d = share * (g.t1 - g.t0);
    this.setFollow(false);
    this.show(g.t0 + d, g.t1 + d, at_once);
  }

  all(): void {
    this.setFollow(false);
    const b = this.bounds();
    const pad = (b.t1 - b.t0) * 0.01;
    this.show(b.t0 - pad, b.t1 + pad);
  }

  setFollow(on: boolean): void {
    if (on && !this.model.live) {
      const b = this.bounds();
      this.show(b.t1 - this.span, b.t1);
      on = false;
    }
    if (on === this.follow) return;
    this.follow = on;
    if (on) this.frozen = false;
    this.goal = null;
    if (on) this.layout();
    this.onMoved();
    this.wake();
  }

  // reveal brings a call into view.
  reveal(w: Where, end: number): void {
    this.threads.open(w);
    const t = this.track(w.thread);
    if (t) {
      const y = this.rowY(t, w.depth);
      if (y < this.scroller.scrollTop + HEAD || y > this.scroller.scrollTop + this.height - 60)
        this.scroller.scrollTop = Math.max(0, y - this.height / 3);
    }
    const g = this.target();
    if (end < g.t0 || w.start > g.t1 || end - w.start > (g.t1 - g.t0) * 1.5 || end - w.start < ((g.t1 - g.t0) / this.width) * 4) {
      this.setFollow(false);
      const d = Math.max(end - w.start, MINSPAN);
      this.show(w.start - d * 2, end + d * 2);
    }
    this.wake();
  }

  scrollTo(top: number): void {
    this.scroller.scrollTop = top;
  }

  scrollBy(dy: number): void {
    this.scroller.scrollTop += dy;
  }

  key(k: string, down: boolean): boolean {
    if (!['a', 'd', 'w', 's', 'arrowleft', 'arrowright'].includes(k)) return false;
    if (down) {
      if (!this.keys.has(k)) {
        this.keys.add(k);
        if (k === 'a' || k === 'arrowleft') this.pan(-0.12);
        else if (k === 'd' || k === 'arrowright') this.pan(0.12);
        else this.zoom(k === 'w' ? 0.75 : 1.33);
      }
      this.wake();
    } else this.keys.delete(k);
    return true;
  }

  clearKeys(): void {
    this.keys.clear();
  }

  wake(): void {
    this.dirty = true;
    if (!this.running) {
      this.running = true;
      this.lastFrame = performance.now();
      requestAnimationFrame((t) => this.tick(t));
    }
  }

  private stickToEdge(): void {
    const span = this.span;
    const edge = this.model.edge();
    this.t1 = edge + span * 0.02;
    this.t0 = this.t1 - span;
  }

  private tick(now: number): void {
    const dt = Math.min(100, Math.max(1, now - this.lastFrame));
    this.frames.push(now - this.lastFrame);
    if (this.frames.length > 240) this.frames.shift();
    this.lastFrame = now;
    let again = false;
    if (this.keys.size) {
      const step = dt / 1000;
      for (const k of this.keys) {
        if (k === 'a' || k === 'arrowleft') this.pan(-0.9 * step);
        else if (k === 'd' || k === 'arrowright') this.pan(0.9 * step);
        else if (k === 'w') this.zoom(Math.exp(-2.2 * step));
        else if (k === 's') this.zoom(Math.exp(2.2 * step));
      }
      again = true;
    }
    if (this.follow && this.model.live) {
      this.stickToEdge();
      if (now - this.followed > 100) {
        this.followed = now;
        this.onFollowed();
      }
      again = true;
      this.dirty = true;
    } else if (this.follow) {
      this.setFollow(false);
    }
    if (this.goal) {
      const k = 1 - Math.exp(-dt / 45);
      this.t0 += (this.goal.t0 - this.t0) * k;
      this.t1 += (this.goal.t1 - this.t1) * k;
      const px = (this.goal.t1 - this.goal.t0) / this.width;
      if (Math.abs(this.goal.t0 - this.t0) < px / 4 && Math.abs(this.goal.t1 - this.t1) < px / 4) {
        this.t0 = this.goal.t0;
        this.t1 = this.goal.t1;
        this.goal = null;
      }
      this.dirty = true;
      again = true;
      this.onMoved();
    }
    if (this.model.live && !this.frozen && this.t1 > this.model.edge() - 1e9) again = this.dirty = true;
    for (const b of this.bands) if (b.request()) again = true;
    this.between.request();
    if (this.dirty) {
      this.dirty = false;
      this.draw();
    }
    if (again) requestAnimationFrame((t) => this.tick(t));
    else this.running = false;
  }

  private drawn = false; // calls have been drawn

  draw(): void {
    const g = fit(this.calls, this.width, this.height);
    for (const b of this.bands) b.draw(g);
    const axis = fit(this.axis, this.width, 24);
    drawAxis(axis, this);
    if (!this.drawn && this.tracks.some((t) => this.model.data.get(t.seq)?.rows.some((r) => r.n > 0))) {
      this.drawn = true;
      performance.mark('sliver:calls'); // for those who measure
    }
  }

  // settled reports whether the newest view is on the screen.
  settled(): boolean {
    return this.goal === null && this.threads.settled();
  }

  // renew drops the pending request, after a new connection.
  renew(other = true): void {
    this.threads.renew();
    if (other) {
      for (const b of this.bands) b.reset();
      this.between.reset();
    }
    this.wake();
  }

  // toLane scrolls to the track of a lock, by its address.
  toLane(key: string): void {
    this.lanes.open = true;
    this.layout();
    const lane = this.lanes.items.find((i) => i.key === key || i.lock?.addr === key) ?? this.lanes.items[0];
    if (lane) this.scroller.scrollTop = Math.max(0, lane.y - this.height / 2);
  }
}
