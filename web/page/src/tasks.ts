// Tracks of a runtime's tasks (goroutines, asyncio tasks, virtual threads), below those of threads: what each
// did on whichever thread, and what it waited for. Only the rows on the screen are requested.

import { partWords } from './analysis';
import { inkOn, theme, type Theme } from './color';
import { Column, type Line } from './column';
import { el, h } from './dom';
import { partOf } from './draw';
import { count, cut, dur, forms, taskForms } from './format';
import type { Link } from './proto';
import type { Band, Range, Spot, Stage, Track } from './track';

// Span is start, end, busy (ns), value (as of thread states), thread (seq; -1: none), reason (-1: none), count.
export type Span = [number, number, number, number, number, number, number];
export interface Task {
  id: number;
  parent?: number;
  func?: string;
  ran: number;
  ready: number;
  waited: number;
  spans?: Span[];
}
export interface TasksReply extends Range {
  what?: string;
  count: number;
  idle: number;
  lost?: number;
  more?: number;
  made: number;
  from: number;
  reasons: string[];
  list: Task[];
  process?: number; // of a recording of several processes: whose tasks these are
  processes?: number[]; // and all that have tasks
}
export interface TaskHit {
  process?: number;
  task: Task;
  what: string;
  span: Span;
  reason: string;
}
export interface TaskAt {
  id: number;
  at: number;
  process?: number; // index of the process, of a recording of several
}
export type Sort = '' | 'wait';

interface Page {
  r: TasksReply;
  bin: number;
  sort: Sort;
  asked: number;
}

const group = 24; // height of the line that folds them
const rowHeight = 30;
const high = 17; // of a span
const few = 12; // up to this number the tracks are unfolded at first
const rowsOfPage = 64;
const again = 2000; // ms between looks at which tasks a live recording has
const seldom = 10_000; // the same while they are not in sight
const tries = 3; // looks without a task after which no more follow
const newer = 500; // ms between views of one that is followed
const labelFont = '12px ui-sans-serif, system-ui, -apple-system, "Segoe UI", "Noto Sans", sans-serif'; // as in style.css
const beside = 27; // px of a label's width that its name cannot take
const whole = 1e18; // ns: one span for all

// Tasks are the tracks of one process.
export class Tasks implements Band {
  open: boolean | undefined; // undefined: unless there are many
  sort: Sort = '';
  head: TasksReply | null = null;
  onLayout = (): void => {};
  onChange = (): void => {}; // folded, or ordered
  onTask = (_: TaskAt): void => {};
  onSpan = (_: TaskHit, _at: { x: number; y: number } | null): void => {}; // hovered at a point of the window, or clicked
  private pages = new Map<number, Page>();
  private busy = false;
  private lookedAt = -Infinity;
  private lookedLive = false; // the recording went on then
  private looks = 0;
  private failed = -Infinity;
  private fails = 0; // in a row
  private y = 0;
  private list = h('ul');
  private column = new Column(this.list);
  private begun: boolean | undefined; // unfolded at first: more tasks of a live recording do not fold the rows in sight
  private measure = document.createElement('canvas').getContext('2d')!;

  private readonly conn: Link;

  // process is undefined until the reply says whose tasks it has, and of a recording of one process.
  constructor(
    private v: Stage & { task: TaskAt | null },
    public process?: number,
  ) {
    this.conn = v.conn;
    this.list.hidden = true;
    el('tasks').append(this.list);
  }

  // remove takes its labels off the page.
  remove(): void {
    this.list.remove();
  }

  // reset drops all replies, after a connection to another recording.
  reset(): void {
    this.head = null;
    this.begun = undefined;
    this.pages.clear();
    this.looks = this.fails = 0;
  }

  get unfolded(): boolean {
    return this.open ?? this.begun ?? false;
  }

  get rows(): number {
    return this.unfolded ? (this.head?.count ?? 0) : 0;
  }

  // place puts the rows below y and returns the height that they take.
  place(y: number): number {
    this.y = y;
    const { head } = this;
    this.list.hidden = !head?.what || !(head.count + head.idle);
    return this.list.hidden ? 0 : group + this.rows * rowHeight;
  }

  // visible returns the rows on the screen, and more of them on both sides.
  private visible(more = 0): [number, number] {
    const { v } = this;
    const top = v.top - this.y - group;
    return [Math.max(0, Math.floor(top / rowHeight) - more), Math.min(this.rows, Math.ceil((top + v.height) / rowHeight) + more)];
  }

  private row(i: number): { task: Task; page: Page } | undefined {
    const page = this.pages.get(Math.floor(i / rowsOfPage));
    const task = page?.sort === this.sort ? page.r.list[i - page.r.from] : undefined;
    return task && { task, page: page! };
  }

  // show brings a row into view.
  show(row: number): void {
    this.open = true;
    this.onLayout();
    el('tracks').scrollTop = Math.max(0, this.y + group + row * rowHeight - this.v.height / 2);
    this.onChange();
  }

  // of names the process, of a recording of several.
  private of(): string {
    const p = this.process === undefined ? undefined : this.v.model.hello?.processes?.[this.process];
    return p ? ` of ${p.comm} (${p.pid})` : '';
  }

  // name is what a task is called.
  name(id: number): string {
    return `${this.head?.what ?? 'task'} ${id}`;
  }

  private labels(): void {
    const { head } = this;
    if (!head || this.list.hidden) return;
    const [a, b] = this.visible(2);
    const shown: { y: number; task?: Task }[] = [];
    for (let i = a; i < b; i++) shown.push({ y: this.y + group + i * rowHeight, task: this.row(i)?.task });
    const room = this.list.clientWidth - beside;
    const key = JSON.stringify([
      room,
      this.unfolded,
      this.sort,
      this.y,
      head.count,
      head.idle,
      shown.map((s) => [s.y, s.task?.id, s.task?.ran, s.task?.waited]),
    ]);
    this.column.show(key, () => this.lines(shown, head, room));
  }

  private lines(shown: { y: number; task?: Task }[], head: TasksReply, room: number): Line[] {
    const left = this.left().join('; ');
    const fold = h(
      'button',
      {
        class: 'link',
        'data-key': 'fold',
        'aria-expanded': String(this.unfolded),
        title: left,
        onclick: () => {
          this.open = !this.unfolded;
          this.onLayout();
          this.onChange();
        },
      },
      `${this.unfolded ? '▾' : '▸'} ${count(head.count)} ${head.what}${head.count === 1 ? '' : 's'}${this.of()}`,
    );
    const order = h(
      'button',
      {
        class: 'link soft',
        'data-key': 'order',
        title: 'Change the order of these tracks',
        onclick: () => {
          this.sort = this.sort ? '' : 'wait';
          this.v.wake();
          this.onChange();
        },
      },
      this.sort ? 'by waiting' : 'by running',
    );
    return [
      { y: this.y, h: group, heads: true, nodes: [fold, this.unfolded && head.count > 1 ? order : null] },
      ...shown.map(({ y, task }) => ({ y, h: rowHeight, nodes: task ? this.label(task, room) : [h('span', { class: 'sub' }, '…')] })),
    ];
  }

  // tracks returns the tasks between two heights.
  tracks(from: number, to: number): Track[] {
    if (this.list.hidden) return [];
    const first = Math.max(0, Math.floor((from - this.y - group) / rowHeight));
    const out: Track[] = [];
    for (let i = first; i < this.rows && this.y + group + i * rowHeight < to; i++) {
      const task = this.row(i)?.task;
      out.push({
        kind: 'task',
        key: `${this.process ?? ''}/${task?.id ?? `row ${i}`}`,
        title: task ? task.func || this.name(task.id) : '',
        y: this.y + group + i * rowHeight,
        h: rowHeight,
        spot: (x, y) => this.spot(x, y),
      });
    }
    return out;
  }

  private spot(x: number, y: number): Spot | null {
    const hit = this.hit(x, y - this.v.top);
    return (
      hit && {
        time: { t0: hit.span[0], t1: hit.span[1] },
        hover: (left, top) => {
          this.v.onHover(null, 0, 0);
          this.onSpan(hit, { x: left, y: top });
        },
        click: () => this.onSpan(hit, null),
      }
    );
  }

  // left says what the tracks do not show.
  private left(): string[] {
    const { idle = 0, more = 0, lost = 0 } = this.head ?? {};
    return [
      idle ? `${count(idle)} of the runtime left out` : '',
      more ? `${count(more)} more are not in this file` : '',
      lost ? `${count(lost)} times on a thread left out` : '',
    ].filter((x) => x);
  }

  // shortened is a form of a name that fits into the column of labels: what it ends with says more than the
  // package that it begins with.
  private shortened(name: string, room: number): string {
    this.measure.font = labelFont;
    const width = (s: string): number => this.measure.measureText(s).width;
    return (
      cut(
        taskForms(name).map((f) => [f, width(f)]),
        room,
        width,
      ) || name
    );
  }

  private label(t: Task, room: number): HTMLElement[] {
    const name = t.func || this.name(t.id);
    const waited = t.waited > 0 ? `, waited ${dur(t.waited)}` : ''; // those of some runtimes are not known
    return [
      h(
        'button',
        {
          class: 'link',
          'data-key': String(t.id),
          title: `${this.name(t.id)} ${t.func ?? ''}: what it did and waited for`,
          onclick: () => this.onTask({ id: t.id, at: (this.v.t0 + this.v.t1) / 2, process: this.process }),
        },
        this.shortened(name, room),
        h('span', { class: 'sub', title: `ran ${dur(t.ran)}${waited}` }, `${t.id} · ran ${dur(t.ran)}${waited}`),
      ),
    ];
  }

  request(): boolean {
    this.query();
    return false;
  }

  // query sends one if the replies do not cover the rows on the screen.
  private query(): void {
    const { v } = this;
    const now = performance.now();
    if (!this.conn.up || this.busy || !v.model.status?.to || now - this.failed < Math.min(60_000, 500 * 2 ** this.fails)) return;
    const { live } = v.model;
    if (!live && !v.model.status.done) return; // it is being read
    const { head } = this;
    if (!head || (this.lookedLive && !live) || (live && v.follow && now - this.lookedAt > this.wait())) {
      this.lookedAt = now;
      this.lookedLive = live;
      this.looks++;
      this.ask({ max: 1, bin: whole, t0: 0, t1: 1 }, (r) => {
        const other = r.count !== head?.count || r.idle !== head?.idle || r.what !== head?.what;
        this.head = r;
        if (r.what) this.process ??= r.process;
        if (r.count) this.begun ??= r.count <= few;
        if (other) this.onLayout();
      });
      return;
    }
    const top = this.y - v.top;
    if (!this.rows || top > v.height || top + group + this.rows * rowHeight < 0) return;
    const bin = 2 ** Math.max(0, Math.ceil(Math.log2(v.span / v.width) - 0.2));
    const t0 = Math.max(v.t0, v.model.from());
    const t1 = Math.min(v.t1, v.model.edge());
    if (t1 <= t0) return;
    const want = (k: number): boolean => {
      const p = this.pages.get(k);
      if (!p || p.sort !== this.sort || p.bin !== bin || p.r.t0 > t0) return true;
      if (live) return (v.follow || p.r.t1 < t1) && now - p.asked > newer;
      return p.r.t1 < t1 || p.r.made !== head.made;
    };
    const [a, b] = this.visible();
    for (let k = Math.floor(a / rowsOfPage); k * rowsOfPage < b; k++) {
      if (!want(k)) continue;
      const page: Page = { r: null as never, bin, sort: this.sort, asked: now };
      const from = Math.max(v.t0 - v.span / 2, v.model.from());
      const to = Math.max(from + 1, Math.min(v.t1 + v.span / 2, v.model.edge()));
      this.ask(
        { from: k * rowsOfPage, max: rowsOfPage, bin, mode: this.sort || undefined, t0: Math.floor(from), t1: Math.ceil(to) },
        (r) => {
          page.r = r;
          this.pages.set(k, page);
        },
      );
      return;
    }
  }

  // wait is the time in ms between looks at which tasks there are.
  private wait(): number {
    if (!this.head?.what) return this.looks < tries ? seldom : Infinity;
    return this.rows && this.y - this.v.top < this.v.height ? again : seldom;
  }

  private ask(args: Record<string, unknown>, take: (r: TasksReply) => void): void {
    this.busy = true;
    this.conn.ask<TasksReply>('tasks', { process: this.process, ...args }).then(
      (r) => {
        this.busy = false;
        this.fails = 0;
        take(r);
        this.v.wake();
      },
      () => {
        this.busy = false;
        this.failed = performance.now();
        this.fails++;
      },
    );
  }

  // settled reports whether the rows on the screen are those of the newest question.
  settled(): boolean {
    if (!this.head || this.busy) return false;
    const [a, b] = this.visible();
    for (let i = a; i < b; i++) if (!this.row(i)) return false;
    return true;
  }

  hit(x: number, y: number): TaskHit | null {
    const { v } = this;
    const i = Math.floor((y + v.top - this.y - group) / rowHeight);
    const row = i >= 0 && i < this.rows ? this.row(i) : undefined;
    const spans = row?.task.spans ?? [];
    const t = v.t0 + (x / v.width) * v.span;
    const slack = (2 / v.width) * v.span;
    const k = first(spans, t);
    const span = spans[k] && spans[k]![0] - slack < t ? spans[k]! : k > 0 && t - spans[k - 1]![1] < slack ? spans[k - 1]! : undefined;
    return row && span
      ? { process: this.process, task: row.task, what: this.head?.what ?? 'task', span, reason: row.page.r.reasons[span[5]] ?? '' }
      : null;
  }

  // text describes a span in lines.
  text(x: TaskHit): string[] {
    const { task, span } = x;
    const d = dur(span[1] - span[0]);
    const name = `${this.name(task.id)} ${task.func ?? ''}`.trim() + this.of();
    if (span[6] > 1)
      return [name, `${count(span[6])} changes, too thin to show`, `${dur(span[2])} in all, within ${d}`, 'zoom in to see them'];
    const on = [...this.v.model.threads.values()].find((t) => t.seq === span[4]);
    return [name, x.reason ? `waits: ${x.reason}` : stateWord(span[3]), on ? `on ${on.name} (${on.tid})` : 'on no thread', d];
  }

  draw(g: CanvasRenderingContext2D): void {
    this.labels();
    const { v, head } = this;
    const c = theme();
    const top = this.y - v.top;
    if (!head || this.list.hidden || top > v.height) return;
    g.fillStyle = c.panel;
    g.fillRect(0, top, v.width, group);
    g.textBaseline = 'middle';
    g.fillStyle = c.soft;
    g.fillText(
      [this.of().trim(), this.unfolded && head.count > 1 ? `those that ${this.sort ? 'waited' : 'ran'} longest first` : '', ...this.left()]
        .filter((x) => x)
        .join(' · '),
      6,
      top + group / 2,
    );
    const [a, b] = this.visible();
    for (let i = a; i < b; i++) {
      const y = top + group + i * rowHeight;
      g.fillStyle = c.line;
      g.fillRect(0, Math.round(y + rowHeight) - 1, v.width, 1);
      const row = this.row(i);
      if (row) this.spans(g, c, row.task, row.page.r.reasons, y + 6);
    }
  }

  private spans(g: CanvasRenderingContext2D, c: Theme, t: Task, reasons: string[], y: number): void {
    const { v } = this;
    const spans = t.spans ?? [];
    for (let k = first(spans, v.t0); k < spans.length && spans[k]![0] < v.t1; k++) {
      const [start, end, busy, value, , reason, n] = spans[k]!;
      const a = Math.max(v.x(start), 0);
      const b = Math.min(v.x(end), v.width);
      const part = partOf(value);
      // As calls of threads: work in full color, waits pale with a line in the color of the reason.
      const color = part ? c.parts[part] : c.unknown;
      const ground = part && part !== 'cpu' ? c.veils[part] : color;
      const w = Math.max(b - a, 0.75);
      g.globalAlpha = n > 1 ? Math.max(0.25, Math.min(1, busy / Math.max(1, end - start))) : 1;
      g.fillStyle = w < 3 ? color : ground;
      g.fillRect(a, y, w, high);
      if (ground !== color && w >= 3) {
        g.fillStyle = color;
        g.fillRect(a, y + high - 3, w, 3);
      }
      g.globalAlpha = 1;
      if (n > 1 || w < 24) continue;
      const text = reason >= 0 ? (reasons[reason] ?? '') : part === 'cpu' ? t.func || this.name(t.id) : stateWord(value);
      const cutText = cut(
        (reason < 0 && part === 'cpu' ? taskForms : forms)(text).map((f) => [f, g.measureText(f).width]),
        w - 8,
        (s) => g.measureText(s).width,
      );
      if (!cutText) continue;
      g.fillStyle = inkOn(ground);
      g.fillText(cutText, a + 4, y + high / 2 - (ground === color ? 0 : 1));
    }
    const s = v.task;
    const is = s?.id === t.id && s.process === this.process ? spans[first(spans, s.at)] : undefined;
    if (!is || is[0] > s!.at) return;
    g.strokeStyle = c.hit;
    g.lineWidth = 2;
    g.strokeRect(Math.max(v.x(is[0]), 1), y - 1, Math.max(2, Math.min(v.x(is[1]), v.width - 1) - Math.max(v.x(is[0]), 1)), high + 2);
  }
}

// stateWord names a state without a reason.
export function stateWord(value: number): string {
  const p = partOf(value);
  if (p === 'io' && (value & 0xff) === 3) return 'in a system call';
  return p === 'cpu'
    ? 'runs'
    : p === 'runnable'
      ? 'ready to run'
      : p === 'other'
        ? 'waits; the reason is not known'
        : p
          ? partWords[p]
          : 'not known';
}

// first is the index of the first span that ends after t.
function first(spans: Span[], t: number): number {
  let lo = 0;
  let hi = spans.length;
  while (lo < hi) {
    const m = (lo + hi) >> 1;
    if (spans[m]![1] > t) hi = m;
    else lo = m + 1;
  }
  return lo;
}
