// The tracks of threads: their positions and rows, the views requested for them, and hit-testing. draw.ts
// draws them.

import type { ThreadTime } from './analysis';
import { drawTracks } from './draw';
import { nameFilter } from './filter';
import { groupHeight, Groups } from './groups';
import type { Model, Row } from './model';
import { Order } from './order';
import { sifted } from './own';
import type { Link, ProcessSums, Where } from './proto';
import { lead, owned, type Rows, skipped, survey } from './rows';
import {
  type Band,
  deeper,
  firstRow,
  HEAD,
  heightOf,
  type Hit,
  type Mode,
  ROW,
  rowHeight,
  type Spot,
  type Stage,
  type ThreadRows,
  type Track,
} from './track';

const fewest = 8; // rows that a deep track has at least
const saves = 4; // rows from which hidden ones are worth the two lines that say so
const around = 24; // pixels of the view's height that no track uses
const patience = 5000; // ms after which a view that has not come is requested again

export class Threads implements Band {
  list: ThreadRows[] = [];
  listed: number[] = []; // threads that are shown: those of tracks, and of folded groups
  readonly groups: Groups;
  modes = new Map<number, Mode>();
  hidden = new Set<number>();
  readonly order: Order;
  filter = '';
  onOpen = (): void => {}; // rows were opened that were not shown

  private placed = ''; // what the tracks were placed by
  private deepest = new Map<number, number>(); // rows of a thread as far as seen, of the kinds that are shown
  private rows = new Map<number, Rows>(); // what a thread's rows are
  private tall = 0; // the view's height, as last laid out
  private partial = new Set<number>(); // threads of whose tracks rows may be left out
  private most = 1; // rows that a track has room for
  private met = new Set<number>(); // threads whose calls have been on the screen
  private asked = 0; // number of the view that has not come yet
  private askedAt = 0;
  private summed = false; // the sums of processes were requested
  private readonly model: Model;
  private readonly conn: Link;

  constructor(private v: Stage) {
    this.model = v.model;
    this.conn = v.conn;
    this.order = new Order(v.model);
    this.groups = new Groups(v.model);
  }

  // stale reports whether the threads are other ones than the tracks were placed for, or do
  // something else.
  stale(): boolean {
    const key = `${this.still},${this.order.key((seq) => this.still && this.met.has(seq))}${this.groups.key()}`;
    const other = key !== this.placed;
    this.placed = key;
    return other;
  }

  // rate puts the tracks of a finished recording in the order of how their threads spent the whole of it.
  rate(threads: ThreadTime[]): void {
    if (this.model.live) return;
    this.order.rate(threads);
    this.placed = '';
    this.v.layout();
  }

  // place puts the tracks below top.
  place(top: number): number {
    const m = this.model;
    this.stale();
    const want = nameFilter(this.filter);
    const all = this.order.sorted().filter((s) => !this.hidden.has(s) && want(m.threads.get(s)!.name, m.threads.get(s)!.tid));
    const entries = this.groups.arrange(all, this.order.pinned, this.still);
    this.listed = entries.flatMap((e) => (typeof e === 'number' ? e : e.open ? [] : e.seqs));
    const shown = entries.filter((e) => typeof e === 'number');
    const before = new Map(this.list.map((t) => [t.seq, t]));
    const resized = this.tall !== this.v.height;
    this.list = [];
    this.partial.clear();
    let y = top;
    const busy = shown.filter((s) => this.order.busy(s)).length;
    this.tall = this.v.height;
    this.most = Math.max(fewest, Math.floor(((this.tall - around) / Math.max(1, busy) - HEAD) / ROW) - 2);
    // Of many threads four have room for their rows: those that ran, if there are such.
    const first = new Set(
      [...shown.filter((s) => this.order.busy(s)), ...shown.filter((s) => !this.order.busy(s))].slice(0, shown.length <= 6 ? 6 : 4),
    );
    entries.forEach((seq) => {
      if (typeof seq !== 'number') {
        seq.y = y;
        y += groupHeight;
        return;
      }
      const info = m.threads.get(seq)!;
      // A thread that was never on a CPU and waited for no lock says little: it starts folded.
      const idle = this.order.rests(seq) || (shown.length > 1 && this.order.quiet(seq, m.edge() - m.from()));
      const depth = Math.max(sifted(this.conn, m.kinds) ? 0 : info.depth, this.seen(seq), 1);
      const t: ThreadRows = {
        seq,
        y,
        h: 0,
        mode: this.modes.get(seq) ?? (idle ? 'strip' : first.has(seq) ? 'part' : 'compact'),
        depth,
        skip: 0,
        rows: depth,
      };
      const was = this.still && this.met.has(seq) ? before.get(seq) : undefined;
      if (was) {
        t.mode = this.modes.get(seq) ?? was.mode;
        t.depth = t.rows = Math.max(was.depth, this.inView(seq));
      }
      if (t.mode === 'part') {
        this.partial.add(seq);
        if (!this.rows.has(seq)) this.survey(seq); // its rows came while it was folded
        const skip = this.skip(t);
        if (!this.deep(t) && !skip) t.mode = 'full';
        else if (was?.mode === 'part' && !resized) {
          t.rows = was.rows;
          t.skip = was.skip;
        } else {
          t.rows = Math.min(this.most, t.depth - skip);
          t.skip = skip;
        }
      }
      t.h = heightOf(t);
      this.list.push(t);
      y += t.h;
    });
    return y - top;
  }

  // still: the reader looks at one time of a live recording. News
  // of other times must not move the calls under the pointer.
  private get still(): boolean {
    return this.model.live && !this.v.follow;
  }

  // skip is how many outer rows a track leaves out.
  private skip(t: ThreadRows): number {
    const r = this.rows.get(t.seq);
    if (this.deep(t)) return skipped(r, t.depth, this.most);
    const n = Math.min(lead(r), t.depth - fewest); // a label needs some height too
    return n < saves ? 0 : n;
  }

  // deep reports whether a track has many more rows than there is room for.
  deep(t: ThreadRows): boolean {
    return t.depth > this.most + saves;
  }

  // open shows a call's row.
  open(w: Where): void {
    if (this.groups.uncover(w.thread)) this.v.layout();
    const is = this.track(w.thread);
    if (!is) return;
    if (is.mode === 'strip') {
      this.modes.set(w.thread, 'part');
      this.v.layout();
    }
    const t = this.track(w.thread)!;
    if (w.depth < t.skip || w.depth >= t.skip + t.rows) this.modes.set(w.thread, 'full');
    else if (is === t) return;
    this.v.layout();
    this.onOpen();
  }

  // folded reports whether a track has a line for hidden rows at y of the tracks.
  private folded(t: ThreadRows, y: number): boolean {
    const off = y - t.y;
    const end = firstRow(t) + t.rows * ROW;
    return t.mode === 'part' && ((t.skip > 0 && off >= HEAD && off < HEAD + ROW) || (deeper(t) > 0 && off >= end && off < end + ROW));
  }

  // unfold shows all rows of a track.
  unfold(t: ThreadRows): void {
    this.modes.set(t.seq, 'full');
    this.v.layout();
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
      const i = r.at(this.v.t0);
      if (i < r.n && r.start[i]! < this.v.t1) break;
    }
    return n;
  }

  // grown repeats the layout if calls came that have no row yet.
  grown(): void {
    let again = false;
    for (const t of this.list) {
      const d = this.model.data.get(t.seq);
      if (!d?.rows.length) continue;
      const kept = this.still && this.met.has(t.seq);
      this.met.add(t.seq);
      again ||= (kept ? this.inView(t.seq) : this.seen(t.seq)) > t.depth;
      if (!this.partial.has(t.seq) || kept) continue;
      this.survey(t.seq);
      again ||= this.skip(t) !== t.skip;
    }
    if (again) this.v.layout();
  }

  // survey finds the program's own calls among the rows of a thread.
  private survey(seq: number): void {
    const d = this.model.data.get(seq);
    if (!d?.rows.length) return;
    const edge = this.model.edge();
    const whole = !this.model.live && d.t0 <= this.model.from() && d.t1 >= edge;
    this.rows.set(seq, survey(d.rows, edge, owned(this.model), whole ? undefined : this.rows.get(seq)));
  }

  // toTrack scrolls to a thread's track, and opens it if it is folded.
  toTrack(seq: number): void {
    this.hidden.delete(seq);
    this.groups.uncover(seq);
    if (this.track(seq)?.mode === 'strip') this.modes.set(seq, 'part');
    this.v.layout();
    const t = this.track(seq);
    if (t) this.v.scrollTo(Math.max(0, t.y - 8));
    this.v.mark = { t0: this.v.t0, t1: this.v.t1, seq };
    this.v.wake();
  }

  track(seq: number): ThreadRows | undefined {
    return this.list.find((t) => t.seq === seq);
  }

  rowY(t: ThreadRows, depth: number): number {
    if (depth < 0 || t.mode === 'strip') return t.y + 4;
    return t.y + firstRow(t) + (depth - t.skip) * rowHeight(t.mode);
  }

  // tracks returns the threads and groups between two heights.
  tracks(from: number, to: number): Track[] {
    const out: Track[] = [];
    for (const g of this.groups.heads) {
      if (g.y >= to || g.y + groupHeight <= from) continue;
      const click = (): void => {
        this.groups.turn(g);
        this.v.layout();
        this.onOpen();
      };
      out.push({
        kind: g.process === undefined ? 'group' : 'process',
        key: g.role,
        title: g.title,
        y: g.y,
        h: groupHeight,
        spot: () => ({ hover: () => this.v.onHover(null, 0, 0), click }),
      });
    }
    for (const t of this.list) {
      if (t.y >= to || t.y + t.h <= from) continue;
      out.push({
        kind: 'thread',
        key: String(t.seq),
        title: this.model.threads.get(t.seq)?.name ?? '',
        y: t.y,
        h: t.h,
        spot: (x, y) => this.spot(t, x, y),
      });
    }
    return out;
  }

  private spot(t: ThreadRows, x: number, y: number): Spot | null {
    const hit = this.hit(t, x, y);
    const none = (): void => this.v.onHover(null, 0, 0);
    if (!hit) return this.folded(t, y) ? { opens: true, hover: none, click: () => this.unfold(t) } : null;
    const time = { t0: hit.row.start[hit.i]!, t1: Math.min(hit.row.end[hit.i]!, this.model.edge()) };
    return { hit, time, hover: (left, top) => this.v.onHover(hit, left, top), click: () => this.v.onSelect(hit) };
  }

  // hit is the item of a track at x of the canvas and y of the tracks.
  private hit(tr: ThreadRows, x: number, y: number): Hit | null {
    const d = this.model.data.get(tr.seq);
    if (!d) return null;
    const slack = (2 / this.v.width) * this.v.span;
    const find = (row: Row | undefined, depth: number, lane: boolean): Hit | null => {
      if (!row) return null;
      const t = this.v.time(x);
      let i = row.at(t);
      if (i < row.n && row.start[i]! <= t) return { seq: tr.seq, depth, row, i, lane };
      if (i < row.n && row.start[i]! - t < slack) return { seq: tr.seq, depth, row, i, lane };
      i--;
      if (i >= 0 && t - row.end[i]! < slack) return { seq: tr.seq, depth, row, i, lane };
      return null;
    };
    const off = y - tr.y;
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

  // answered is called when the frames of a view have come.
  answered(id: number): void {
    if (id >= this.asked) this.asked = 0;
    this.v.wake();
  }

  // sum requests what each of several processes used and waited for, once the recording is read.
  private sum(): void {
    if (this.summed || !this.groups.processes || !this.conn.up || !this.model.status?.done) return;
    this.summed = true;
    this.conn.ask<ProcessSums[]>('processes', {}).then(
      (r) => {
        this.groups.sums = r;
        this.v.layout();
      },
      () => {}, // the lines have no sums
    );
  }

  // request requests the calls of the screen and a screen beside it, if they are
  // not there in this resolution. It reports whether something is under way.
  request(): boolean {
    this.sum();
    if (!this.conn.up || !this.list.length) return false;
    if (this.asked) return performance.now() - this.askedAt < patience;
    const g = this.v.follow ? { t0: this.v.t0, t1: this.v.t1 } : this.v.target();
    const span = g.t1 - g.t0;
    const bin = 2 ** Math.max(0, Math.ceil(Math.log2(span / this.v.width) - 0.2)); // 0.9 to 1.7 pixels
    const lo = this.v.top - this.v.height;
    const hi = this.v.top + 2 * this.v.height;
    const seqs: number[] = [];
    let missing = false;
    const edge = this.model.live ? Infinity : this.model.edge();
    const from = this.model.from();
    for (const t of this.list) {
      if (t.y + t.h < lo || t.y > hi) continue;
      seqs.push(t.seq);
      if (t.y + t.h < this.v.top || t.y > this.v.top + this.v.height) continue;
      const d = this.model.data.get(t.seq);
      if (!d || d.bin !== bin || d.lit !== this.v.lit || d.t0 > Math.max(g.t0, from) || d.t1 < Math.min(g.t1, edge)) missing = true;
      else if (this.v.follow && (d.t1 !== Infinity || g.t0 - d.t0 > 6 * span)) missing = true;
    }
    if (!missing || !seqs.length) return false;
    const v = this.v.follow
      ? { t0: g.t0 - span, t1: 0, bin, follow: true, funcs: this.v.lit }
      : { t0: g.t0 - span, t1: g.t1 + span, bin, follow: false, funcs: this.v.lit };
    this.asked = this.conn.view({ ...v, t0: Math.round(v.t0), t1: Math.round(v.t1), threads: seqs });
    this.askedAt = performance.now();
    this.model.views.set(this.asked, v);
    return true;
  }

  draw(g: CanvasRenderingContext2D): void {
    drawTracks(g, this.v);
    this.groups.draw(g, this.v);
  }

  settled(): boolean {
    return this.asked === 0 && this.list.length > 0;
  }

  // resized reports whether the view's height is another one than the tracks were placed for.
  resized(): boolean {
    return this.tall !== this.v.height && this.list.length > 0;
  }

  // renew drops the pending request, after a new connection.
  renew(): void {
    this.asked = 0;
    this.rows.clear();
  }

  reset(): void {
    this.summed = false;
    this.groups.sums = [];
    this.met.clear();
  }

  // forget drops the depths seen so far, before calls of other kinds are shown.
  forget(): void {
    this.deepest.clear();
  }
}
