import { connected } from './able';
import { Bar } from './bar';
import { onTheme } from './color';
import { Context } from './context';
import { el, fill, h, menu, say } from './dom';
import { help } from './help';
import { hooks } from './hooks';
import { pointers } from './input';
import { Labels } from './labels';
import { Look } from './look';
import { Marks } from './marks';
import { Minimap } from './minimap';
import { type ColorBy, Model, type Row } from './model';
import { Offline } from './offline';
import { Conn, type Handlers, type Link, type Where } from './proto';
import { Panel } from './panel';
import { carried } from './shared';
import { Search } from './search';
import { Side } from './side';
import { type Tab, tabs } from './tabs';
import { Timeline } from './timeline';
import type { Hit, Mode } from './track';
import type { Weight } from './tree';
import { read, type State, write } from './url';

const state = read();
const model = new Model();
let first = true; // nothing has been shown yet
let problem = 'Connecting to sliver…';
let up = false;

const handlers: Handlers = {
  hello(m) {
    const other = model.hello && model.hello.base !== m.base;
    model.hello = m;
    model.reset();
    if (other) first = true;
    timeline.renew(!!other);
    bar.update();
    side.again();
    panel.again();
  },
  processes(m) {
    model.join(m);
  },
  status(m) {
    const was = model.status;
    const whole = timeline.wholeProcesses();
    model.setStatus(m);
    timeline.chooseNew(whole);
    if (first && m.to > 0) begin();
    if (timeline.threads.stale()) timeline.layout();
    else labels.update();
    if (was && m.to > was.to && !m.done && !model.hello?.live && loading) timeline.all();
    if (m.done) loading = false;
    if (was && m.done && !was.done && model.hello?.live) {
      say('the recording has ended');
      timeline.setFollow(false);
    }
    empty();
    bar.update();
    void mini.refresh(!was || was.done !== m.done);
    panel.changed(!was || was.done !== m.done);
    search.again();
    timeline.wake();
  },
  names(m) {
    model.names(m);
    timeline.wake();
  },
  frame(f) {
    model.frame(f);
    if (f.type === 1) timeline.threads.answered(f.id);
    timeline.threads.grown();
    timeline.wake();
  },
  state(isUp, why) {
    up = model.up = isUp;
    problem = why;
    document.body.classList.toggle('offline', !isUp);
    connected(isUp ? '' : why);
    if (model.hello) say(isUp ? 'connected again' : why);
    empty();
    bar.update();
  },
};
const conn: Link = carried() ? new Offline(handlers) : new Conn(state.token, handlers);

const timeline = new Timeline(model, conn);
const labels = new Labels(timeline);
const mini = new Minimap(timeline);
const search = new Search(timeline);
const side = new Side(timeline);
const panel = new Panel(timeline);
const look = new Look(timeline);
const bar = new Bar(timeline, search, look, () => help(model));
const marks = new Marks(
  () => model.hello,
  () => model.from(),
);
let loading = true;
let held: ReturnType<typeof setTimeout> | undefined;

pointers(timeline);
timeline.onHover = (hit, x, y) => side.hover(hit, x, y);
timeline.onSelect = (hit) => {
  if (hit && timeline.follow) {
    // The clicked call stays in sight until the reader follows again.
    timeline.setFollow(false);
    timeline.frozen = true;
    bar.update();
  }
  if (hit && !hit.lane && hit.row.count[hit.i] === 1) void side.select({ thread: hit.seq, depth: hit.depth, start: hit.row.start[hit.i]! });
  else if (hit && !hit.lane) timeline.zoom(0.3, timeline.x((hit.row.start[hit.i]! + hit.row.end[hit.i]!) / 2));
  else void side.select(null);
};
timeline.lanes.onLane = (x, at) => {
  if (at) return side.note(timeline.lanes.text(x), at.x, at.y);
  if (x.lane.file) return panel.file(x.lane.file.path);
  const t = [...model.threads.values()].find((i) => i.tid === x.holder);
  if (t) void side.holder(t.seq, x.t0, x.t1);
};
timeline.tasks.onSpan = (x, at) => {
  if (at) return side.note(timeline.tasks.text(x), at.x, at.y);
  if (x.span[6] > 1) return timeline.zoom(0.3, timeline.x((x.span[0] + x.span[1]) / 2));
  pickTask(x.task.id, x.span[0]);
};
timeline.tasks.onTask = (x) => pickTask(x.id, x.at);
timeline.tasks.onChange = () => keep();

// pickTask selects a task. The view stops following the newest samples, so that the task stays in sight.
function pickTask(id: number, at: number, track = false): void {
  if (timeline.follow) {
    timeline.setFollow(false);
    timeline.frozen = true;
    bar.update();
  }
  void side.task(id, at, track);
}
timeline.lanes.onLock = (addr) => panel.lock(addr);
timeline.lanes.onFile = (path) => panel.file(path);
new Context(
  timeline,
  {
    details: (hit) => timeline.onSelect(hit),
    find: (n) => search.exact(n),
    callers: (n) => panel.callers(n),
    focus: (n) => panel.only(n, false),
    hide: (n) => panel.only(n, true),
    time: (t0, t1) => timeline.onRange({ t0, t1 }, true),
    lock: (addr) => panel.lock(addr),
    note: (t) => note(t),
    changed: () => {
      labels.onChange();
      if (timeline.range) timeline.onRange(timeline.range, true);
    },
  },
  middle,
);
timeline.onRange = (r, done) => {
  timeline.range = r && r.t1 - r.t0 > 0 ? r : null;
  if (done) {
    panel.draw();
    panel.changed(true);
    if (search.input.value) void search.run();
    requestAnimationFrame(() => timeline.resize());
    step();
  }
  mini.draw();
  timeline.wake();
};
timeline.onMoved = () => {
  panel.changed();
  mini.draw();
  bar.update();
  void mini.refresh();
  keep();
};
timeline.onFollowed = () => mini.draw();
side.onGo = (w: Where, end: number) => timeline.reveal(w, end);
side.onFunc = (f) => search.func(f);
side.onChange = step;
panel.onName = side.onName = (n) => search.exact(n);
panel.onTime = side.onTime = (t0, t1, seq) => {
  const pad = Math.max((t1 - t0) * 0.3, 1000);
  timeline.setFollow(false);
  step();
  timeline.show(t0 - pad, t1 + pad);
  if (seq >= 0) timeline.threads.toTrack(seq);
  timeline.mark = { t0, t1, seq };
};
panel.onLane = (addr) => timeline.toLane(addr);
panel.onTask = (id, at) => pickTask(id, at, true);
panel.onThread = (seq) => timeline.threads.toTrack(seq);
panel.onChange = () => {
  look.runtime(panel.code === 'all');
  step();
};
look.onRuntime = (on) => panel.setCode(on ? 'all' : '');
panel.onExport = (b) => menu(b, () => bar.formats(true));
search.onChange = (m) => {
  panel.match = m;
  keep();
};
marks.onShow = (t) => {
  const { span } = timeline;
  timeline.setFollow(false);
  step();
  timeline.show(t - span / 2, t + span / 2);
};
timeline.notes.onNote = (m) => {
  edited = m.t;
  marks.renew();
  panel.show('notes');
};
marks.onChange = () => {
  timeline.marks = marks.list;
  timeline.wake();
  if (panel.tab === 'notes') panel.draw();
  step();
};
let edited: number | undefined; // time of the note whose text is selected
panel.notes = () => {
  const is = edited;
  edited = undefined;
  return marks.view(() => timeline.time(timeline.width / 2), is);
};

// note adds a note at a time.
function note(t: number): void {
  const b = timeline.bounds();
  edited = Math.round(Math.min(Math.max(t, b.t0), b.t1));
  if (!marks.add(edited)) {
    say('there are too many notes');
    return;
  }
  panel.show('notes');
}
let pointer: number | null = null; // x on the tracks
el('calls').addEventListener('pointermove', (e) => (pointer = e.offsetX));
el('calls').addEventListener('pointerleave', () => (pointer = null));
search.onNext = (w) => void side.go(w);
labels.onChange = () => {
  panel.changed();
  keep();
};
timeline.threads.onOpen = keep;
look.onChange = (kinds) => {
  if (kinds && !first) {
    // Depths count among the calls that are shown: those of before are others.
    if (timeline.selected) void side.select(null);
    panel.again();
    if (search.input.value) void search.run();
  }
  panel.restyle();
  keep();
};
onTheme(() => {
  timeline.wake();
  mini.draw();
  panel.restyle();
});

// begin shows what the address asks for, or the newest, or all.
function begin(): void {
  first = false;
  if (!tabs.includes(state.tab as Tab) && model.hello?.compare) panel.tab = 'compare';
  state.marks ??= marks.kept();
  apply(state);
  timeline.resize();
  panel.draw();
  panel.changed(true);
}

// apply shows what an address says.
function apply(s: State): void {
  applying = true;
  setTimeout(() => (applying = false), 400); // changes that follow from it are not steps of the reader
  timeline.threads.hidden = new Set(s.hidden);
  timeline.chosen = new Set(s.chosen);
  timeline.threads.order.pinned = s.pinned ?? [];
  timeline.threads.order.arranged = s.order ?? [];
  timeline.threads.filter = s.filter ?? '';
  timeline.threads.groups.on = s.groups !== undefined;
  timeline.threads.groups.by = s.processes === 'wait' ? 'wait' : 'cpu';
  timeline.threads.groups.changed.clear();
  for (const role of s.groups ?? []) timeline.threads.groups.changed.add(role);
  timeline.threads.modes.clear();
  for (const [seq, m] of s.modes ?? []) if (['part', 'full', 'compact', 'strip'].includes(m)) timeline.threads.modes.set(seq, m as Mode);
  look.color(['function', 'module', 'kind'].includes(s.color ?? '') ? (s.color as ColorBy) : 'state');
  if ((s.kinds ?? '') !== conn.kinds) look.kinds(s.kinds ?? '');
  marks.set(s.marks ?? []);
  timeline.marks = marks.list;
  timeline.layout();
  const b = timeline.bounds();
  if (s.t0 !== undefined && s.t1 !== undefined && s.t1 > s.t0 && !s.follow) {
    loading = false;
    timeline.setFollow(false);
    timeline.show(s.t0, s.t1, true);
  } else if (model.live) {
    timeline.show(b.t1 - (s.t1 && s.t0 ? s.t1 - s.t0 : 5e9), b.t1, true);
    timeline.setFollow(true);
  } else timeline.show(b.t0 - (b.t1 - b.t0) * 0.01, b.t1 + (b.t1 - b.t0) * 0.01, true);
  if (s.top) requestAnimationFrame(() => timeline.scrollTo(s.top!));
  if (search.input.value !== (s.q ?? '')) search.text(s.q ?? '');
  if (tabs.includes(s.tab as Tab)) panel.tab = s.tab as Tab;
  else if (!s.tab && panel.tab !== 'compare') panel.tab = 'overview';
  panel.weight = ['wait', 'lock', 'wall', 'samples'].includes(s.weight ?? '') ? (s.weight as Weight) : 'cpu';
  panel.graphs.order = s.flame === 'time' || s.flame === 'sandwich' ? s.flame : 'heavy';
  panel.idle = !!s.idle;
  panel.code = s.code === 'my' || s.code === 'all' ? s.code : '';
  look.runtime(panel.code === 'all');
  timeline.onRange(s.range ? { t0: s.range[0], t1: s.range[1] } : null, true);
  const call = s.call ? { thread: s.call[0], depth: s.call[1], start: s.call[2] } : null;
  if (call) timeline.threads.open(call);
  timeline.tasks.open = s.tasks ? !s.tasks.startsWith('folded') : undefined;
  timeline.tasks.sort = s.tasks?.endsWith('wait') ? 'wait' : '';
  timeline.layout();
  if (s.task) void side.task(...s.task);
  else if (call || timeline.selected || timeline.task) void side.select(call);
}

let applying = false; // an address is being applied
let stepped = false; // the reader made a step that Back undoes

// keep puts the view into the address, a moment later.
function keep(): void {
  if (first || held || applying) return;
  held = setTimeout(() => {
    held = undefined;
    put();
  }, 250);
}

// step is keep for what Back shall undo: a selection, a jump, another tab.
function step(): void {
  if (first || applying) return;
  stepped = true;
  keep();
}

function put(): void {
  const s = timeline.selected;
  const g = timeline.target();
  write(
    {
      token: state.token,
      t0: g.t0,
      t1: g.t1,
      follow: timeline.follow,
      range: timeline.range ? [timeline.range.t0, timeline.range.t1] : undefined,
      call: s ? [s.thread, s.depth, s.start] : undefined,
      task: timeline.task ? [timeline.task.id, timeline.task.at] : undefined,
      tasks: tasksWord(),
      q: search.input.value,
      chosen: [...timeline.chosen],
      hidden: [...timeline.threads.hidden],
      pinned: timeline.threads.order.pinned,
      order: timeline.threads.order.arranged,
      modes: [...timeline.threads.modes],
      filter: timeline.threads.filter,
      processes: timeline.threads.groups.by === 'wait' ? 'wait' : undefined,
      groups: timeline.threads.groups.on || timeline.threads.groups.processes ? [...timeline.threads.groups.changed] : undefined,
      tab: panel.tab === 'overview' ? undefined : panel.tab,
      top: timeline.top,
      color: model.colorBy,
      kinds: conn.kinds,
      weight: panel.weight,
      flame: panel.graphs.order,
      idle: panel.idle,
      code: panel.code,
      marks: marks.list,
    },
    stepped,
  );
  stepped = false;
}

// tasksWord says how the tracks of tasks are, where they are not as at first.
function tasksWord(): string | undefined {
  const { open, sort } = timeline.tasks;
  return open === undefined && !sort ? undefined : `${timeline.tasks.unfolded ? 'open' : 'folded'}${sort ? `-${sort}` : ''}`;
}

// empty explains a page without calls, or with old ones.
function empty(): void {
  const box = el('empty');
  const s = model.status;
  let text = '';
  let more = '';
  if (!state.token && !carried()) {
    text = 'The token is missing in this address.';
    more = 'Open the whole address that sliver printed, with what follows the #.';
  } else if (!up) text = problem;
  else if (!s) text = 'Connecting to sliver…';
  else if (s.error && !s.to) {
    text = 'The recording cannot be read.';
    more = s.error;
  } else if (!s.to && !s.done && model.hello?.live) {
    text = 'No samples yet.';
    more = 'Waiting for the first sample of a chosen thread.';
  } else if (!s.to && !s.done) text = 'Reading the recording…';
  else if (!s.to) {
    text = 'There are no samples in this recording.';
    more = s.reason ? `It ended: ${s.reason}.` : '';
  } else if (!timeline.threads.listed.length && !first) {
    text = 'No thread is shown.';
    more = 'Change the filter of threads, or show the hidden ones again.';
  }
  box.hidden = !text;
  box.classList.toggle('over', !!model.status?.to && !up);
  if (box.textContent !== text + more) fill(box, h('h2', null, text), more ? h('p', null, more) : null);
}

document.addEventListener('keydown', (e) => {
  const t = e.target as HTMLElement;
  if (e.ctrlKey || e.metaKey || e.altKey || t.closest('input, select, textarea, dialog')) return;
  const k = e.key.length === 1 ? e.key.toLowerCase() : e.key;
  const control = t.closest('button, [role=tab], .menu');
  switch (k) {
    case '/':
      search.input.focus();
      search.input.select();
      break;
    case '?':
      help(model);
      break;
    case '0':
      timeline.all();
      break;
    case ' ':
      if (control) return;
      if (model.live) {
        if (timeline.follow) {
          timeline.setFollow(false);
          timeline.frozen = true;
          say('frozen');
        } else timeline.setFollow(true);
        bar.update();
      }
      break;
    case 'End':
      timeline.setFollow(true);
      bar.update();
      break;
    case 'Home': {
      timeline.setFollow(false);
      const b = timeline.bounds();
      timeline.show(b.t0 - timeline.span * 0.02, b.t0 + timeline.span * 0.98);
      break;
    }
    case 'Enter': {
      if (control) return;
      const hit = middle();
      if (hit) timeline.onSelect(hit);
      break;
    }
    case '[':
    case ']':
      void side.loading.then(() => side.step(k === ']' ? 1 : -1));
      break;
    case 'b':
      note(timeline.time(pointer ?? timeline.width / 2));
      break;
    case 'f':
      void side.loading.then(() => side.zoom());
      break;
    case 'm':
      void side.loading.then(() => side.call && timeline.onRange({ t0: side.call.start, t1: side.call.end }, true));
      break;
    case 'ArrowUp':
    case 'ArrowDown':
      if (timeline.selected) {
        void side.loading.then(() => {
          const w = timeline.selected;
          const to = w && side.detail?.calls[w.depth + (k === 'ArrowUp' ? -1 : 1)];
          if (to) void side.go({ thread: w.thread, depth: to.depth, start: to.start });
        });
      } else timeline.scrollBy(k === 'ArrowUp' ? -80 : 80);
      break;
    case 'Escape':
      if (timeline.selected || timeline.task) void side.select(null);
      else if (timeline.range) timeline.onRange(null, true);
      else if (search.input.value) search.text('');
      break;
    default:
      if (!timeline.key(k.toLowerCase(), true)) return;
  }
  e.preventDefault();
});
// The outline of a canvas is for those who came to it by keyboard.
document.addEventListener('keydown', (e) => e.key === 'Tab' && document.body.classList.add('tabbing'), true);
document.addEventListener('pointerdown', () => document.body.classList.remove('tabbing'), true);
document.addEventListener('keyup', (e) => void timeline.key(e.key.toLowerCase(), false));
window.addEventListener('blur', () => timeline.clearKeys());

// middle is the innermost call in the middle of the first track on the screen.
function middle(): Hit | null {
  for (const t of timeline.tracks) {
    if (t.y + t.h < timeline.top + 20) continue;
    const d = model.data.get(t.seq);
    if (!d) continue;
    const at = timeline.time(timeline.width / 2);
    for (let depth = Math.min(d.rows.length, t.skip + t.rows) - 1; depth >= t.skip; depth--) {
      const r: Row = d.rows[depth]!;
      const i: number = r.at(at);
      if (i < r.n && r.start[i]! <= at && r.count[i] === 1) return { seq: t.seq, depth, row: r, i, lane: false };
    }
  }
  return null;
}

hooks({ timeline, model, conn, search, side, panel, marks, up: () => up, first: () => first });

// Back, Forward, or another address of this page that was typed or pasted.
window.addEventListener('popstate', () => {
  const s = read();
  if (s.token !== state.token) return location.reload();
  if (first) return;
  clearTimeout(held);
  held = undefined;
  stepped = false;
  apply(s);
});
empty();
if (state.token || carried()) conn.open();
