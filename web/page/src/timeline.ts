// The tracks: their places, the views requested for them, how they
// move. What they look like is in draw.ts.

import { reducedMotion } from './color';
import { ThreadTime } from './analysis';
import { Link, Where } from './proto';
import { Model, Row } from './model';
import { drawAxis, drawTracks } from './draw';
import { el, fit } from './dom';
import { nameFilter } from './filter';
import { groupHeight, Groups } from './groups';
import { LaneHit, Lanes } from './lanes';
import { drawMarks, Mark } from './marks';
import { Order } from './order';
import { TaskAt, TaskHit, Tasks } from './tasks';
import { owned, Rows, skipped, survey } from './rows';
import { Arrow, deeper, firstRow, HEAD, heightOf, Hit, Mode, Range, ROW, rowHeight, Track, View } from './track';

// Gestures say what the pointer does: drag selects and the wheel scrolls, as in Perfetto, or drag moves
// and the wheel zooms, as on a map.
export type Gestures = 'perfetto' | 'map';

export const MINSPAN = 50;
const fewest = 8; // rows that a deep track has at least
const aroundTracks = 140; // pixels of the window's height that are not the tracks'

export class Timeline implements View {
  t0 = 0;
  t1 = 1e9;
  follow = false;
  frozen = false;
  tracks: Track[] = [];
  listed: number[] = []; // threads that are shown: those of tracks, and of folded groups
  readonly groups: Groups;
  modes = new Map<number, Mode>();
  hidden = new Set<number>();
  readonly order: Order;
  readonly tasks: Tasks; // below the tracks
  readonly lanes: Lanes; // below those
  task: TaskAt | null = null; // selected
  filter = '';
  chosen = new Set<number>();
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
  arrows: Arrow[] = []; // as drawn last
  mark: { t0: number; t1: number; seq: number } | null = null; // what a row of a table showed last
  onMoved = (): void => {};
  onFollowed = (): void => {}; // ten times a second while the newest edge is followed
  onLayout = (): void => {};
  onOpen = (): void => {}; // rows were opened that were not shown
  onHover = (_: Hit | null, _x: number, _y: number): void => {};
  onSelect = (_: Hit | null): void => {};
  onLane = (_: LaneHit, _at: { x: number; y: number } | null): void => {}; // hovered at a point of the window, or clicked
  onTask = (_: TaskHit, _at: { x: number; y: number } | null): void => {}; // the same
  onRange = (_: Range | null, _done: boolean): void => {};

  private placed = ''; // what the tracks were placed by
  private deepest = new Map<number, number>(); // rows of a thread as far as seen, of the kinds that are shown
  private rows = new Map<number, Rows>(); // what a thread's rows are
  private tall = 0; // the window's height, as last laid out
  private goal: Range | null = null;
  private dirty = true;
  private running = false;
  private lastFrame = 0;
  private followed = 0;
  private asked = 0; // number of the view that has not come yet
  private askedAt = 0;
  private calls = el<HTMLCanvasElement>('calls');
  private axis = el<HTMLCanvasElement>('axis');
  private scroller = el('tracks');
  private space = el('space');
  private keys = new Set<string>();

  constructor(readonly model: Model, readonly conn: Link) {
    this.order = new Order(model);
    this.groups = new Groups(model);
    this.tasks = new Tasks(this, conn);
    this.tasks.onLayout = () => this.layout();
    this.lanes = new Lanes(this, conn);
    this.lanes.onLayout = () => this.layout();
    new ResizeObserver(() => this.resize()).observe(this.scroller);
    this.scroller.addEventListener('scroll', () => {
      this.top = this.scroller.scrollTop;
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
    if (this.tall !== window.innerHeight && this.tracks.length) this.layout();
    this.wake();
  }

  // stale reports whether the threads are other ones than the tracks were placed for, or do
  // something else.
  stale(): boolean {
    const key = this.still + ',' + this.order.key((seq) => this.still && this.met.has(seq)) + this.groups.key();
    const other = key !== this.placed;
    this.placed = key;
    return other;
  }

  // rate puts the tracks of a finished recording in the order of how their threads spent the whole of it.
  rate(threads: ThreadTime[]): void {
    if (this.model.live) return;
    this.order.rate(threads);
    this.placed = '';
    this.layout();
  }

  // layout places the tracks.
  layout(): void {
    const m = this.model;
    this.stale();
    const want = nameFilter(this.filter);
    const all = this.order.sorted().filter((s) => !this.hidden.has(s) && want(m.threads.get(s)!.name, m.threads.get(s)!.tid));
    const entries = this.groups.arrange(all, this.order.pinned);
    this.listed = entries.flatMap((e) => (typeof e === 'number' ? e : e.open ? [] : e.seqs));
    const shown = entries.filter((e) => typeof e === 'number');
    const before = new Map(this.tracks.map((t) => [t.seq, t]));
    const resized = this.tall !== window.innerHeight;
    this.tracks = [];
    let y = 0;
    const busy = shown.filter((s) => this.order.busy(s)).length;
    this.tall = window.innerHeight;
    this.most = Math.max(fewest, Math.floor(((this.tall - aroundTracks) / Math.max(1, busy) - HEAD) / ROW) - 2);
    // Of many threads four have room for their rows: those that ran, if there are such.
    const first = new Set([...shown.filter((s) => this.order.busy(s)), ...shown.filter((s) => !this.order.busy(s))].slice(0, shown.length <= 6 ? 6 : 4));
    entries.forEach((seq) => {
      if (typeof seq !== 'number') {
        seq.y = y;
        y += groupHeight;
        return;
      }
      const info = m.threads.get(seq)!;
      // A thread that was never on a CPU and waited for no lock says little: it starts folded.
      const idle = this.order.rests(seq) || (shown.length > 1 && this.order.quiet(seq, m.edge() - m.from()));
      const depth = Math.max(this.conn.kinds ? 0 : info.depth, this.seen(seq), 1);
      const t: Track = { seq, y, h: 0, mode: this.modes.get(seq) ?? (idle ? 'strip' : first.has(seq) ? 'part' : 'compact'), depth, skip: 0, rows: depth };
      const was = this.still && this.met.has(seq) ? before.get(seq) : undefined;
      if (was) {
        t.mode = this.modes.get(seq) ?? was.mode;
        t.depth = t.rows = Math.max(was.depth, this.inView(seq));
      }
      if (t.mode === 'part' && !this.deep(t)) t.mode = 'full';
      if (t.mode === 'part' && was?.mode === 'part' && !resized) {
        t.rows = was.rows;
        t.skip = was.skip;
      } else if (t.mode === 'part') {
        t.rows = this.most;
        t.skip = skipped(this.rows.get(seq), t.depth, t.rows);
      }
      t.h = heightOf(t);
      this.tracks.push(t);
      y += t.h;
    });
    y += this.tasks.place(y);
    y += this.lanes.place(y);
    this.space.style.height = Math.max(y + 60, this.height) + 'px';
    this.onLayout();
    this.wake();
  }

  private most = 1; // rows that a track has room for
  private met = new Set<number>(); // threads whose calls have been on the screen

  // still: the reader looks at one time of a live recording. News
  // of other times must not move the calls under the pointer.
  private get still(): boolean {
    return this.model.live && !this.follow;
  }

  // deep reports whether a track has more rows than there is room for.
  deep(t: Track): boolean {
    return t.depth > this.most + 2;
  }

  // open shows a call's row.
  open(w: Where): void {
    if (this.groups.uncover(w.thread)) this.layout();
    const is = this.track(w.thread);
    if (!is) return;
    if (is.mode === 'strip') {
      this.modes.set(w.thread, 'part');
      this.layout();
    }
    const t = this.track(w.thread)!;
    if (w.depth < t.skip || w.depth >= t.skip + t.rows) this.modes.set(w.thread, 'full');
    else if (is === t) return;
    this.layout();
    this.onOpen();
  }

  // folded is the track with a line for hidden rows at y of the canvas.
  folded(y: number): Track | undefined {
    const Y = y + this.top;
    return this.tracks.find((t) => {
      const off = Y - t.y;
      const end = firstRow(t) + t.rows * ROW;
      return t.mode === 'part' && ((t.skip > 0 && off >= HEAD && off < HEAD + ROW) || (deeper(t) > 0 && off >= end && off < end + ROW));
    });
  }

  // unfold shows all rows of a track.
  unfold(t: Track): void {
    this.modes.set(t.seq, 'full');
    this.layout();
    this.onOpen();
  }

  // seen is how many rows of a thread have come so far.
  private seen(seq: number): number {
    const n = Math.max(this.deepest.get(seq) ?? 0, this.model.data.get(seq)?.rows.length ?? 0);
    this.deepest.set(seq, n);
    return n;
  }

  // inView is how many of them have calls in the time on the screen.
  private inView(seq: number): number {
    const rows = this.model.data.get(seq)?.rows ?? [];
    let n = rows.length;
    for (; n > 0; n--) {
      const r = rows[n - 1]!;
      const i = r.at(this.t0);
      if (i < r.n && r.start[i]! < this.t1) break;
    }
    return n;
  }

  // grown repeats the layout if calls came that have no row yet.
  grown(): void {
    let again = false;
    const own = owned(this.model);
    const edge = this.model.edge();
    for (const t of this.tracks) {
      const d = this.model.data.get(t.seq);
      if (!d?.rows.length) continue;
      const kept = this.still && this.met.has(t.seq);
      this.met.add(t.seq);
      again ||= (kept ? this.inView(t.seq) : this.seen(t.seq)) > t.depth;
      if (t.mode !== 'part' || kept) continue;
      const whole = !this.model.live && d.t0 <= this.model.from() && d.t1 >= edge;
      this.rows.set(t.seq, survey(d.rows, edge, own, whole ? undefined : this.rows.get(t.seq)));
      again ||= skipped(this.rows.get(t.seq), t.depth, t.rows) !== t.skip;
    }
    if (again) this.layout();
  }

  // sift shows calls of some kinds alone, '' all.
  sift(kinds: string): void {
    if (kinds === this.conn.kinds) return;
    this.conn.kinds = kinds;
    this.model.forget();
    this.deepest.clear();
    this.renew();
    this.layout();
  }

  // toTrack scrolls to a thread's track, and opens it if it is folded.
  toTrack(seq: number): void {
    this.hidden.delete(seq);
    this.groups.uncover(seq);
    if (this.track(seq)?.mode === 'strip') this.modes.set(seq, 'part');
    this.layout();
    const t = this.track(seq);
    if (t) this.scroller.scrollTop = Math.max(0, t.y - 8);
    this.mark = { t0: this.t0, t1: this.t1, seq };
    this.wake();
  }

  track(seq: number): Track | undefined {
    return this.tracks.find((t) => t.seq === seq);
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
    this.open(w);
    const t = this.track(w.thread);
    if (t) {
      const y = this.rowY(t, w.depth);
      if (y < this.scroller.scrollTop + HEAD || y > this.scroller.scrollTop + this.height - 60) this.scroller.scrollTop = Math.max(0, y - this.height / 3);
    }
    const g = this.target();
    if (end < g.t0 || w.start > g.t1 || end - w.start > (g.t1 - g.t0) * 1.5 || end - w.start < ((g.t1 - g.t0) / this.width) * 4) {
      this.setFollow(false);
      const d = Math.max(end - w.start, MINSPAN);
      this.show(w.start - d * 2, end + d * 2);
    }
    this.wake();
  }

  rowY(t: Track, depth: number): number {
    if (depth < 0 || t.mode === 'strip') return t.y + 4;
    return t.y + firstRow(t) + (depth - t.skip) * rowHeight(t.mode);
  }

  // hit finds the item at a point of the canvas.
  hit(x: number, y: number): Hit | null {
    const Y = y + this.top;
    const tr = this.tracks.find((t) => Y >= t.y && Y < t.y + t.h);
    if (!tr) return null;
    const d = this.model.data.get(tr.seq);
    if (!d) return null;
    const slack = (2 / this.width) * this.span;
    const find = (row: Row | undefined, depth: number, lane: boolean): Hit | null => {
      if (!row) return null;
      const t = this.time(x);
      let i = row.at(t);
      if (i < row.n && row.start[i]! <= t) return { seq: tr.seq, depth, row, i, lane };
      if (i < row.n && row.start[i]! - t < slack) return { seq: tr.seq, depth, row, i, lane };
      i--;
      if (i >= 0 && t - row.end[i]! < slack) return { seq: tr.seq, depth, row, i, lane };
      return null;
    };
    const off = Y - tr.y;
    if (off < HEAD) {
      if (off < 11) return find(d.lanes.get(0xfffc), 0xfffc, true) ?? find(d.lanes.get(0xffff), 0xffff, true);
      if (off < 18) return find(d.lanes.get(0xfffe), 0xfffe, true) ?? find(d.lanes.get(0xfffd), 0xfffd, true);
      return find(d.lanes.get(0xfffd), 0xfffd, true);
    }
    if (tr.mode === 'strip') return null;
    const row = Math.floor((off - firstRow(tr)) / rowHeight(tr.mode));
    if (row < 0 || row >= tr.rows) return null;
    const depth = tr.skip + row;
    return find(d.rows[depth], depth, false);
  }

  // near is the item of a call given by thread, depth and start.
  near(w: Where): Hit | null {
    const row = this.model.data.get(w.thread)?.rows[w.depth];
    if (!row) return null;
    const i = row.at(w.start);
    return i < row.n && row.start[i]! <= w.start ? { seq: w.thread, depth: w.depth, row, i, lane: false } : null;
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
    if (this.request()) again = true;
    if (this.dirty) {
      this.dirty = false;
      this.draw();
    }
    if (again) requestAnimationFrame((t) => this.tick(t));
    else this.running = false;
  }

  private shown = false; // calls have been drawn

  draw(): void {
    const g = fit(this.calls, this.width, this.height);
    drawTracks(g, this);
    this.groups.draw(g, this);
    this.tasks.draw(g);
    this.tasks.request();
    this.lanes.draw(g);
    this.lanes.request();
    drawMarks(g, this);
    const axis = fit(this.axis, this.width, 24);
    drawAxis(axis, this);
    if (!this.shown && this.tracks.some((t) => this.model.data.get(t.seq)?.rows.some((r) => r.n > 0))) {
      this.shown = true;
      performance.mark('sliver:calls'); // for those who measure
    }
  }

  // settled reports whether the newest view is on the screen.
  settled(): boolean {
    return this.asked === 0 && this.goal === null && this.tracks.length > 0;
  }

  // answered is called when the frames of a view have come.
  answered(id: number): void {
    if (id >= this.asked) this.asked = 0;
    this.wake();
  }

  // renew drops the pending request, after a new connection.
  renew(other = true): void {
    this.asked = 0;
    this.rows.clear();
    if (other) {
      this.met.clear();
      this.lanes.reset();
      this.tasks.reset();
    }
    this.wake();
  }

  // toLane scrolls to the track of a lock, by its address.
  toLane(key: string): void {
    this.lanes.open = true;
    this.layout();
    const lane = this.lanes.items.find((i) => i.key === key) ?? this.lanes.items[0];
    if (lane) this.scroller.scrollTop = Math.max(0, lane.y - this.height / 2);
  }

  // request requests the calls of the screen and a screen beside it, if they are
  // not there in this resolution. It reports whether something is under way.
  private request(): boolean {
    if (!this.conn.up || !this.tracks.length) return false;
    if (this.asked) return performance.now() - this.askedAt < 5000;
    const g = this.follow ? { t0: this.t0, t1: this.t1 } : this.target();
    const span = g.t1 - g.t0;
    const bin = 2 ** Math.max(0, Math.ceil(Math.log2(span / this.width) - 0.2)); // 0.9 to 1.7 pixels
    const lo = this.top - this.height;
    const hi = this.top + 2 * this.height;
    const seqs: number[] = [];
    let missing = false;
    const edge = this.model.live ? Infinity : this.model.edge();
    const from = this.model.from();
    for (const t of this.tracks) {
      if (t.y + t.h < lo || t.y > hi) continue;
      seqs.push(t.seq);
      if (t.y + t.h < this.top || t.y > this.top + this.height) continue;
      const d = this.model.data.get(t.seq);
      if (!d || d.bin !== bin || d.lit !== this.lit || d.t0 > Math.max(g.t0, from) || d.t1 < Math.min(g.t1, edge)) missing = true;
      else if (this.follow && (d.t1 !== Infinity || g.t0 - d.t0 > 6 * span)) missing = true;
    }
    if (!missing || !seqs.length) return false;
    const v = this.follow ? { t0: g.t0 - span, t1: 0, bin, follow: true, funcs: this.lit } : { t0: g.t0 - span, t1: g.t1 + span, bin, follow: false, funcs: this.lit };
    this.asked = this.conn.view({ ...v, t0: Math.round(v.t0), t1: Math.round(v.t1), threads: seqs });
    this.askedAt = performance.now();
    this.model.views.set(this.asked, v);
    return true;
  }
}
