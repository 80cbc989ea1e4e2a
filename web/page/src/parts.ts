// The parts of the page that the address has words of.

import type { Look } from './look';
import type { Marks } from './marks';
import type { Model, ColorBy } from './model';
import type { Panel } from './panel';
import type { Link } from './proto';
import type { Search } from './search';
import type { Side } from './side';
import { list, lists, num, type Part, put } from './store';
import { type Tab, tabs } from './tabs';
import type { Timeline } from './timeline';
import type { Mode } from './track';
import type { Weight } from './tree';

// one is value if it is one of those allowed, otherwise the first of them.
const one = <T extends string>(value: string | null, allowed: readonly T[]): T =>
  allowed.includes(value as T) ? (value as T) : allowed[0]!;

// threads: which are shown, in which order and form, and which are chosen.
export function threads(timeline: Timeline): Part {
  const { threads: t } = timeline;
  return {
    save(w) {
      lists(w, 'on', [...timeline.chosen]);
      lists(w, 'hide', [...t.hidden]);
      lists(w, 'pin', t.order.pinned);
      lists(w, 'order', t.order.arranged);
      put(w, 'rows', [...t.modes].map((m) => m.join(':')).join(','));
      put(w, 'threads', t.filter);
      put(w, 'processes', t.groups.by === 'wait' && 'wait');
      if (!t.groups.on && !t.groups.processes) return;
      put(w, 'groups', 'pool');
      for (const role of t.groups.changed) w.append('turned', role);
    },
    load(w) {
      t.hidden = new Set(list(w, 'hide'));
      timeline.chosen = new Set(list(w, 'on'));
      t.order.pinned = list(w, 'pin') ?? [];
      t.order.arranged = list(w, 'order') ?? [];
      t.filter = w.get('threads') ?? '';
      t.groups.on = w.has('groups');
      t.groups.by = one(w.get('processes'), ['cpu', 'wait']);
      t.groups.changed.clear();
      for (const role of w.has('groups') ? w.getAll('turned') : []) t.groups.changed.add(role);
      t.modes.clear();
      for (const [seq, m] of w
        .get('rows')
        ?.split(',')
        .map((s) => s.split(':')) ?? [])
        if (['part', 'full', 'compact', 'strip'].includes(m ?? '')) t.modes.set(Number(seq), m as Mode);
    },
  };
}

// colors: what colors and rows mean.
export function colors(look: Look, model: Model, conn: Link): Part {
  return {
    save(w) {
      put(w, 'color', model.colorBy !== 'state' && model.colorBy);
      put(w, 'kinds', conn.kinds);
    },
    load(w) {
      look.color(one<ColorBy>(w.get('color'), ['state', 'function', 'module', 'kind']));
      const kinds = w.get('kinds') ?? '';
      if (kinds !== conn.kinds) look.kinds(kinds);
    },
  };
}

// notes: those of the address; without one, those that the browser keeps of this recording.
export function notes(marks: Marks, timeline: Timeline): Part {
  return {
    save(w) {
      for (const m of marks.list) w.append('mark', `${m.t} ${m.text}`);
    },
    load(w, opened) {
      const said = w.getAll('mark').map((m) => ({ t: parseFloat(m), text: m.replace(/^\S* ?/, '') }));
      marks.set(said.length || !opened ? said : marks.kept());
      timeline.marks = marks.list;
    },
  };
}

// time: which part of the recording is on the screen, and how far it is scrolled.
export function time(timeline: Timeline, model: Model, given: () => void): Part {
  return {
    save(w) {
      put(w, 'live', timeline.follow && '1');
      const { t0, t1 } = timeline.target();
      w.set('t0', String(Math.round(t0)));
      w.set('t1', String(Math.round(t1)));
      put(w, 'top', Math.round(timeline.top));
    },
    load(w) {
      timeline.layout();
      const b = timeline.bounds();
      const [t0, t1, top] = [num(w, 't0'), num(w, 't1'), num(w, 'top')];
      if (t0 !== undefined && t1 !== undefined && t1 > t0 && w.get('live') !== '1') {
        given();
        timeline.setFollow(false);
        timeline.show(t0, t1, true);
      } else if (model.live) {
        timeline.show(b.t1 - (t1 && t0 ? t1 - t0 : 5e9), b.t1, true);
        timeline.setFollow(true);
      } else timeline.show(b.t0 - (b.t1 - b.t0) * 0.01, b.t1 + (b.t1 - b.t0) * 0.01, true);
      if (top) requestAnimationFrame(() => timeline.scrollTo(top));
    },
  };
}

// words: the text of the search.
export function words(search: Search): Part {
  return {
    save: (w) => put(w, 'q', search.input.value),
    load(w) {
      const q = w.get('q') ?? '';
      if (search.input.value !== q) search.text(q);
    },
  };
}

// analysis: the panel's tab and what its tables count.
export function analysis(panel: Panel, look: Look): Part {
  return {
    save(w) {
      put(w, 'tab', panel.tab !== 'overview' && panel.tab);
      put(w, 'weight', panel.weight !== 'cpu' && panel.weight);
      put(w, 'flame', panel.graphs.order !== 'heavy' && panel.graphs.order);
      put(w, 'idle', panel.idle && '1');
      put(w, 'code', panel.code);
    },
    load(w) {
      const tab = w.get('tab');
      if (tabs.includes(tab as Tab)) panel.tab = tab as Tab;
      else if (!tab && panel.tab !== 'compare') panel.tab = 'overview';
      panel.weight = one<Weight>(w.get('weight'), ['cpu', 'wait', 'lock', 'wall', 'samples']);
      panel.graphs.order = one(w.get('flame'), ['heavy', 'time', 'sandwich']);
      panel.idle = w.get('idle') === '1';
      panel.code = one(w.get('code'), ['', 'my', 'all']);
      look.runtime(panel.code === 'all');
    },
  };
}

// selection: the range, and the call or the task whose details are shown.
export function selection(timeline: Timeline, side: Side): Part {
  const { tasks } = timeline;
  return {
    save(w) {
      const { range, selected: s, task } = timeline;
      lists(w, 'range', range ? [range.t0, range.t1] : undefined);
      lists(w, 'call', s ? [s.thread, s.depth, s.start] : undefined);
      lists(w, 'task', task ? [task.id, task.at, ...(task.process === undefined ? [] : [task.process])] : undefined);
      // How the tracks of tasks are, where they are not as at first.
      if (tasks.open !== undefined || tasks.sort)
        put(w, 'tasks', `${tasks.unfolded ? 'open' : 'folded'}${tasks.sort ? `-${tasks.sort}` : ''}`);
    },
    load(w) {
      const [range, at] = [list(w, 'range', 2), list(w, 'call', 3)];
      const task = list(w, 'task', 3) ?? list(w, 'task', 2);
      timeline.onRange(range ? { t0: range[0]!, t1: range[1]! } : null, true);
      const call = at ? { thread: at[0]!, depth: at[1]!, start: at[2]! } : null;
      if (call) timeline.threads.open(call);
      const how = w.get('tasks');
      tasks.open = how ? !how.startsWith('folded') : undefined;
      tasks.sort = how?.endsWith('wait') ? 'wait' : '';
      timeline.layout();
      if (task) void side.task({ id: task[0]!, at: task[1]!, process: task[2] });
      else if (call || timeline.selected || timeline.task) void side.select(call);
    },
  };
}
