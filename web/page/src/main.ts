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
import { Model, type Row } from './model';
import { Offline } from './offline';
import { Conn, type Handlers, type Link, type Where } from './proto';
import { Panel } from './panel';
import { analysis, colors, notes, selection, threads, time, words } from './parts';
import { carried } from './shared';
import { Search } from './search';
import { Side } from './side';
import { Store, token } from './store';
import type { TaskAt } from './tasks';
import { Timeline } from './timeline';
import type { Hit } from './track';

const model = new Model();
let first = true; // nothing has been shown yet
let problem = 'Connecting to sliver…';
let up = false;

const handlers: Handlers = {
  hello(m) {
    const other = model.hello && model.hello.base !== m.base;
    model.hello = m;
    model.reset();
    if (other) {
      first = true;
      store.close();
    }
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
const conn: Link = carried() ? new Offline(handlers) : new Conn(token(), handlers);

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
let loading = true; // the view grows while a recording is loaded
const store = new Store(
  [
    threads(timeline),
    colors(look, model, conn),
    notes(marks, timeline),
    time(timeline, model, () => (loading = false)),
    words(search),
    analysis(panel, look),
    selection(timeline, side),
  ],
  () => location.reload(),
);

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
  pickTask({ id: x.task.id, at: x.span[0], process: x.process });
};
timeline.tasks.onTask = (x) => pickTask(x);
timeline.tasks.onChange = () => store.keep();

// pickTask selects a task. The view stops following the newest samples, so that the task stays in sight.
function pickTask(task: TaskAt, track = false): void {
  if (timeline.follow) {
    timeline.setFollow(false);
    timeline.frozen = true;
    bar.update();
  }
  void side.task(task, track);
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
    store.step();
  }
  mini.draw();
  timeline.wake();
};
timeline.onMoved = () => {
  panel.changed();
  mini.draw();
  bar.update();
  void mini.refresh();
  store.keep();
};
timeline.onFollowed = () => mini.draw();
side.onGo = (w: Where, end: number) => timeline.reveal(w, end);
side.onFunc = (f) => search.func(f);
side.onChange = () => store.step();
panel.onName = side.onName = (n) => search.exact(n);
panel.onTime = side.onTime = (t0, t1, seq) => {
  const pad = Math.max((t1 - t0) * 0.3, 1000);
  timeline.setFollow(false);
  store.step();
  timeline.show(t0 - pad, t1 + pad);
  if (seq >= 0) timeline.threads.toTrack(seq);
  timeline.mark = { t0, t1, seq };
};
panel.onLane = (addr) => timeline.toLane(addr);
panel.onTask = (task) => pickTask(task, true);
panel.onThread = (seq) => timeline.threads.toTrack(seq);
panel.onChange = () => {
  look.runtime(panel.code === 'all');
  store.step();
};
look.onRuntime = (on) => panel.setCode(on ? 'all' : '');
panel.onExport = (b) => menu(b, () => bar.formats(true));
search.onChange = (m) => {
  panel.match = m;
  store.keep();
};
marks.onShow = (t) => {
  const { span } = timeline;
  timeline.setFollow(false);
  store.step();
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
  store.step();
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
  store.keep();
};
timeline.threads.onOpen = () => store.keep();
look.onChange = (kinds) => {
  if (kinds && !first) {
    // Depths count among the calls that are shown: those of before are others.
    if (timeline.selected) void side.select(null);
    panel.again();
    if (search.input.value) void search.run();
  }
  panel.restyle();
  store.keep();
};
onTheme(() => {
  timeline.wake();
  mini.draw();
  panel.restyle();
});

// begin shows what the address asks for, or the newest, or all.
function begin(): void {
  first = false;
  if (model.hello?.compare) panel.tab = 'compare';
  store.open();
  timeline.resize();
  panel.draw();
  panel.changed(true);
}

// empty explains a page without calls, or with old ones.
function empty(): void {
  const box = el('empty');
  const s = model.status;
  let text = '';
  let more = '';
  if (!token() && !carried()) {
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

empty();
if (token() || carried()) conn.open();
