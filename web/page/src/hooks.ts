// What tests look at, as window.sliver. Nothing on the page uses it.

import { el } from './dom';
import { dur } from './format';
import type { Marks } from './marks';
import type { Model } from './model';
import type { Panel } from './panel';
import { GAPS, type Link, LOCKS, PAUSES, STATES } from './proto';
import type { Search } from './search';
import type { Side } from './side';
import type { Timeline } from './timeline';

// laneY is the middle of each lane of a thread's track, in pixels below its top.
const laneY = new Map([
  [STATES, 7],
  [LOCKS, 15],
  [PAUSES, 19],
  [GAPS, 5],
]);

export interface Parts {
  timeline: Timeline;
  model: Model;
  conn: Link;
  search: Search;
  side: Side;
  panel: Panel;
  marks: Marks;
  up(): boolean; // there is a connection
  first(): boolean; // nothing has been shown yet
}

export function hooks({ timeline, model, conn, search, side, panel, marks, up, first }: Parts): void {
  Object.defineProperty(window, 'sliver', {
    value: {
      get state() {
        return {
          up: up(),
          first: first(),
          t0: timeline.t0,
          t1: timeline.t1,
          width: timeline.width,
          follow: timeline.follow,
          frozen: timeline.frozen,
          edge: model.edge(),
          from: model.from(),
          tracks: timeline.tracks.map((t) => ({ ...t, name: model.threads.get(t.seq)?.name })),
          shown: timeline.shown().map(({ kind, key, title, y, h }) => ({ kind, key, title, y, h })),
          flags: timeline.notes.flags().map(({ key, title }) => ({ key, title })),
          listed: timeline.threads.listed,
          groups: timeline.threads.groups.heads,
          processSums: timeline.threads.groups.sums,
          top: timeline.top,
          funcs: model.funcs.length,
          frames: timeline.frames.slice(),
          whole: !!model.status?.done && timeline.settled(),
          fine: timeline.settled(),
          gaps: model.gaps,
          kinds: conn.kinds,
          colorBy: model.colorBy,
          bytes: model.bytes,
          hits: search.hits,
          range: timeline.range,
          selected: timeline.selected,
          sums: side.sums,
          hello: model.hello,
          status: model.status,
          arrows: timeline.arrows.slice(),
          lanes: timeline.lanes.items,
          lanesFine: timeline.lanes.settled(),
          tasks: {
            open: timeline.tasks.unfolded,
            rows: timeline.tasks.rows,
            count: timeline.tasks.count,
            fine: timeline.tasks.settled(),
          },
          task: timeline.task,
          marks: marks.list,
          span: dur(timeline.span),
          total: panel.root?.value ?? 0,
          analyzed: panel.settled(),
          tab: panel.tab,
          idle: panel.idle,
        };
      },
      // item finds the screen position of a call by its function, wide enough to be hit.
      item(name: string, wide = 12) {
        const r: DOMRect = el('calls').getBoundingClientRect();
        for (const t of timeline.tracks) {
          const d = model.data.get(t.seq);
          if (!d || (t.mode !== 'full' && t.mode !== 'part')) continue;
          for (let depth = Math.min(d.rows.length, t.skip + t.rows) - 1; depth >= t.skip; depth--) {
            const row = d.rows[depth]!;
            const y = timeline.rowY(t, depth) - timeline.top + 8;
            if (y < 4 || y > timeline.height - 8) continue;
            for (let i = row.at(timeline.t0); i < row.n && row.start[i]! < timeline.t1; i++) {
              const f = model.funcs[row.value[i]!];
              const a = Math.max(timeline.x(row.start[i]!), 0);
              const b = Math.min(timeline.x(Math.min(row.end[i]!, model.edge())), timeline.width);
              if (row.count[i]! === 1 && b - a >= wide && f && (!name || f.name === name)) {
                return { x: r.left + (a + b) / 2, y: r.top + y, name: f.name, seq: t.seq, depth, start: row.start[i]!, end: row.end[i]! };
              }
            }
          }
        }
        return null;
      },
      // named are the functions in rows on the screen that have room for names.
      named() {
        const names = new Set<string>();
        for (const t of timeline.tracks) {
          const d = model.data.get(t.seq);
          if (!d || (t.mode !== 'full' && t.mode !== 'part')) continue;
          for (let depth = t.skip; depth < Math.min(d.rows.length, t.skip + t.rows); depth++) {
            const row = d.rows[depth]!;
            const y = timeline.rowY(t, depth) - timeline.top;
            if (y < 0 || y > timeline.height - 8) continue;
            for (let i = row.at(timeline.t0); i < row.n && row.start[i]! < timeline.t1; i++) {
              const f = model.funcs[row.value[i]!];
              if (f) names.add(f.name);
            }
          }
        }
        return [...names];
      },
      // task finds the screen position of a span of a task, of a state (as of threads) if value is above 0.
      task(value = 0, wide = 8) {
        const r: DOMRect = el('calls').getBoundingClientRect();
        for (let y = 2; y < timeline.height - 4; y += 3) {
          for (let x = 1; x < timeline.width; x += 3) {
            const hit = timeline.tasks.hit(x, y);
            if (!hit || hit.span[6] > 1 || (value && (hit.span[3] & 0xff) !== value)) continue;
            const [a, b] = [Math.max(timeline.x(hit.span[0]), 0), Math.min(timeline.x(hit.span[1]), timeline.width)];
            if (b - a >= wide)
              return {
                x: r.left + (a + b) / 2,
                y: r.top + y,
                id: hit.task.id,
                process: hit.process,
                func: hit.task.func,
                span: hit.span,
                reason: hit.reason,
              };
          }
        }
        return null;
      },
      // ask sends a query.
      ask: (op: string, args: Record<string, unknown>) => conn.ask(op, args),
      // held finds the screen position where a lock's lane has a holder.
      held() {
        const r: DOMRect = el('calls').getBoundingClientRect();
        for (const i of timeline.lanes.items) {
          const y = i.y - timeline.top + 8;
          if (!i.lock || y < 0 || y > timeline.height - 20) continue;
          for (let x = 1; x < timeline.width; x += 2) {
            const hit = timeline.lanes.hit(x, y);
            if (hit?.holder)
              return { x: r.left + x, y: r.top + y, holder: hit.holder, waiting: hit.waiting, addr: i.key, t0: hit.t0, t1: hit.t1 };
          }
        }
        return null;
      },
      // lane finds the screen position of a part of a lane, of one value if value is 0 or more.
      lane(depth: number, value = -1, wide = 2) {
        const r: DOMRect = el('calls').getBoundingClientRect();
        for (const t of timeline.tracks) {
          const row = model.data.get(t.seq)?.lanes.get(depth);
          const y = t.y - timeline.top + (laneY.get(depth) ?? 0);
          if (!row || y < 0 || y > timeline.height) continue;
          for (let i = row.at(timeline.t0); i < row.n && row.start[i]! < timeline.t1; i++) {
            const a = Math.max(timeline.x(row.start[i]!), 0);
            const b = Math.min(timeline.x(Math.min(row.end[i]!, model.edge())), timeline.width);
            if (row.count[i] === 1 && b - a >= wide && (value < 0 || (row.value[i]! & 0xff) === value))
              return { x: r.left + (a + b) / 2, y: r.top + y, seq: t.seq };
          }
        }
        return null;
      },
      // counted adds up the calls that are drawn, by thread and depth.
      counted(seq: number) {
        return model.data.get(seq)?.rows.map((r) => r.count.subarray(0, r.n).reduce((a, b) => a + b, 0)) ?? [];
      },
      // steady is which function each row of a thread has most of the time.
      steady(seq: number) {
        return (
          model.data.get(seq)?.rows.map((r) => {
            r.time(model.edge()); // finds the lead
            return model.funcs[r.lead]?.name ?? '';
          }) ?? []
        );
      },
      // items is how many there are to draw in a span of time.
      items(t0: number, t1: number) {
        let n = 0;
        for (const d of model.data.values())
          for (const r of [...d.rows, ...d.lanes.values()]) for (let i = r.at(t0); i < r.n && r.start[i]! < t1; i++) n++;
        return n;
      },
      newest() {
        let t = 0;
        for (const d of model.data.values()) t = Math.max(t, d.last);
        return t;
      },
    },
  });
}
