// The bar on top: facts of the recording, search, control, downloads.

import { able } from './able';
import { el, fill, h, menu, put, say } from './dom';
import { count, dur, percent } from './format';
import type { Format, Status } from './proto';
import type { Look } from './look';
import { withMarks } from './marks';
import { recorders } from './recorders';
import type { Search } from './search';
import type { Timeline } from './timeline';

// Formats that keep the order of time.
const timelines = ['perfetto', 'firefox', 'chrome', 'speedscope', 'nanoscope', 'timeline-svg', 'timeline-png'];

export class Bar {
  private bar = el('bar');
  private title = h('div', { class: 'title' });
  private state = h('button', { class: 'state', id: 'follow' });
  private facts = h('span', { class: 'soft facts', role: 'group', 'aria-label': 'What was sampled' });
  private controls = h('div', { class: 'controls' });
  private pause = h('button', { class: 'small' });
  private interval = h('select', { 'aria-label': 'Interval between samples' });
  private offered = '';
  private again = h('button', { class: 'small', onclick: () => void this.control('start') }, 'Start');
  private stop = h('button', { class: 'small', onclick: () => void this.control('stop') }, 'Stop');
  private spec = h('input', {
    class: 'spec',
    value: 'all',
    'aria-label': 'Threads to sample',
    onchange: () => void this.control('threads', { threads: this.spec.value }),
  });
  private kept = h('button', { class: 'small', onclick: () => void this.control('keep', { last_ns: 30e9 }) }, 'Keep 30 s');
  private dumps = h('button', { class: 'small', hidden: true }, 'Dumps');
  private all = h('button', { class: 'small', onclick: () => this.v.all() }, 'All');
  private range: HTMLButtonElement;
  private writing = ''; // why nothing else can be kept at present
  private key = '';

  constructor(
    private v: Timeline,
    private search: Search,
    look: Look,
    help: () => void,
  ) {
    this.state.addEventListener('click', () => {
      if (this.v.follow) this.v.setFollow(false);
      else this.v.setFollow(true);
      this.update();
    });
    const range = h(
      'button',
      {
        class: 'small touch',
        'aria-pressed': 'false',
        onclick: () => {
          v.selectMode = !v.selectMode;
          range.setAttribute('aria-pressed', String(v.selectMode));
        },
      },
      'Select',
    );
    this.range = range;
    const share = h(
      'button',
      {
        class: 'small',
        onclick: () => {
          const f = v.model.hello?.formats.find((x) => x.name === 'html');
          if (f) void this.download(f);
        },
      },
      'Share',
    );
    this.share = share;
    const save = h('button', { class: 'small' }, 'Save');
    menu(save, () => this.formats(false));
    this.dumps.addEventListener('click', () => void recorders(v.conn));
    const more = h('button', { class: 'small', title: 'Keys and help (?)', 'aria-label': 'Help', onclick: help }, '?');
    this.pause.addEventListener('click', () => void this.control(v.model.status?.status?.paused ? 'resume' : 'pause'));
    this.interval.addEventListener(
      'change',
      () =>
        void this.control('interval', { interval_ns: Number(this.interval.value) }).then(() => {
          this.interval.value = String(v.model.status?.status?.interval_ns ?? this.interval.value);
        }),
    );
    for (const e of [this.again, this.pause, this.stop, this.interval, this.spec, this.kept]) e.hidden = true;
    put(this.controls, this.again, this.pause, this.stop, this.interval, this.spec, this.kept);
    fill(
      this.bar,
      h('img', { src: document.querySelector<HTMLLinkElement>('link[rel=icon]')?.href ?? '', alt: '', width: 22, height: 22 }),
      this.title,
      this.state,
      this.facts,
      h('span', { class: 'grow' }),
      search.box,
      this.controls,
      range,
      this.all,
      look.button,
      this.dumps,
      share,
      save,
      more,
    );
    this.save = save;
  }

  private save: HTMLButtonElement;
  private share: HTMLButtonElement;

  private intervals(now: number): void {
    const all = [1e5, 2.5e5, 5e5, 1e6, 2e6, 5e6, 1e7, 2e7, 5e7, 1e8];
    if (!all.includes(now)) all.push(now);
    all.sort((a, b) => a - b);
    if (all.join() !== this.offered) {
      this.offered = all.join();
      fill(this.interval, ...all.map((n) => h('option', { value: String(n) }, dur(n))));
    }
    if (document.activeElement !== this.interval) this.interval.value = String(now);
  }

  formats(range: boolean): HTMLElement[] {
    const v = this.v;
    const hello = v.model.hello;
    const items: HTMLElement[] = [];
    const add = (text: string, f: () => void, title = ''): void =>
      void items.push(able(h('button', { role: 'menuitem', onclick: f }, text), title));
    const r = range || v.range ? v.range : null;
    if (r) items.push(h('div', { class: 'soft pad', role: 'presentation' }, `The selected ${dur(r.t1 - r.t0)} only`));
    const all = hello?.formats ?? [];
    const group = (title: string, names: (f: Format) => boolean, put: (f: Format) => void): void => {
      const some = all.filter(names);
      if (some.length) items.push(h('div', { class: 'soft pad', role: 'presentation' }, title));
      for (const f of some) put(f);
    };
    const file = (f: Format): void => add(`${f.title} (${f.ext})`, () => void this.download(f), f.about);
    group(
      'Share',
      (f) => f.name === 'html',
      (f) => add(`One file with page and data (${f.ext})`, () => void this.download(f), f.about),
    );
    group(
      'Open in',
      (f) => !!f.use,
      (f) => {
        if (f.use === 'perfetto') {
          add('Open in Perfetto’s UI', () => void this.perfetto(f, false));
          add('… through 127.0.0.1:9001', () => void this.perfetto(f, true));
        } else if (f.use === 'firefox') add('Open in Firefox Profiler', () => void this.firefox(f));
        else if (f.use === 'speedscope' && hello?.speedscope) add('Open in speedscope', () => void this.speedscope(f));
      },
    );
    group('Recording', (f) => f.name === 'sliver', file);
    group('Timelines', (f) => timelines.includes(f.name), file);
    group('Sums', (f) => !timelines.includes(f.name) && f.name !== 'sliver' && f.name !== 'html', file);
    if (!items.length) items.push(h('div', { class: 'soft pad' }, 'Nothing to download here; sliver export does it.'));
    return items;
  }

  private part(f: Format): Record<string, unknown> {
    const r = this.v.range;
    const p: Record<string, unknown> = { format: f.name };
    if (r) Object.assign(p, { from: Math.round(r.t0), to: Math.round(r.t1) });
    if (r && this.v.chosen.size) p.threads = [...this.v.chosen];
    return p;
  }

  private ticket(f: Format): Promise<{ url: string; name: string }> {
    return this.v.conn.post('/api/ticket', this.part(f));
  }

  private async download(f: Format): Promise<void> {
    try {
      const t = await this.ticket(f);
      const r = await fetch(t.url);
      if (!r.ok) throw new Error(((await r.json()) as { error: string }).error);
      const { range, marks, model } = this.v;
      const blob =
        f.name === 'html' && marks.length
          ? new Blob([withMarks(await r.text(), marks, model.hello!.base, range?.t0 ?? -Infinity, range?.t1 ?? Infinity)], {
              type: 'text/html',
            })
          : await r.blob();
      const a = h('a', { href: URL.createObjectURL(blob), download: t.name });
      document.body.append(a);
      a.click();
      a.remove();
      setTimeout(() => URL.revokeObjectURL(a.href), 60000);
      say(`saved as ${t.name}`);
    } catch (e) {
      this.note((e as Error).message);
    }
  }

  // bytes are those of a format.
  private async bytes(f: Format): Promise<{ data: ArrayBuffer; name: string }> {
    const t = await this.ticket(f);
    const r = await fetch(t.url);
    if (!r.ok) throw new Error(((await r.json()) as { error: string }).error);
    return { data: await r.arrayBuffer(), name: t.name };
  }

  // hand opens another page and sends it a message once it answers a ping. Nothing goes to a server.
  private hand(
    url: string,
    ping: unknown,
    pong: (data: unknown) => boolean,
    message: Promise<{ data: unknown; move?: Transferable[] }>,
  ): void {
    const { origin } = new URL(url);
    const w = window.open(url);
    if (!w) {
      this.note('the browser did not open a window');
      return;
    }
    let tries = 0;
    const timer = window.setInterval(() => {
      if (w.closed || tries++ > 600) return clearInterval(timer);
      w.postMessage(ping, origin);
    }, 100);
    const heard = (e: MessageEvent): void => {
      if (e.origin !== origin || e.source !== w || !pong(e.data)) return;
      clearInterval(timer);
      window.removeEventListener('message', heard);
      message.then(
        (m) => w.postMessage(m.data, origin, m.move),
        (err: Error) => this.note(err.message),
      );
    };
    window.addEventListener('message', heard);
    message.catch((err: Error) => this.note(err.message));
  }

  private async perfetto(f: Format, port: boolean): Promise<void> {
    if (!port) {
      const message = this.bytes(f).then((b) => ({
        data: { perfetto: { buffer: b.data, title: document.title, fileName: b.name } },
        move: [b.data],
      }));
      return this.hand('https://ui.perfetto.dev', 'PING', (d) => d === 'PONG', message);
    }
    const w = window.open('about:blank');
    try {
      const t = await this.v.conn.post<{ url: string }>('/api/perfetto', this.part(f));
      if (w) w.location.href = t.url;
    } catch (e) {
      w?.close();
      this.note((e as Error).message);
    }
  }

  // firefox hands the profile over as docs-developer/loading-in-profiles.md of the Firefox Profiler says.
  private firefox(f: Format): void {
    const text = async (b: ArrayBuffer): Promise<string> => {
      const gzip = new Uint8Array(b, 0, Math.min(2, b.byteLength)).join() === '31,139';
      const body = new Response(b).body!;
      return new Response(gzip ? body.pipeThrough(new DecompressionStream('gzip')) : body).text();
    };
    const message = this.bytes(f).then(async (b) => ({ data: { name: 'inject-profile', profile: await text(b.data) } }));
    this.hand(
      'https://profiler.firefox.com/from-post-message/',
      { name: 'is-ready' },
      (d) => (d as { name?: string } | null)?.name === 'is-ready',
      message,
    );
  }

  private async speedscope(f: Format): Promise<void> {
    const w = window.open('about:blank');
    try {
      const t = await this.ticket(f);
      if (w) w.location.href = `/speedscope/index.html#profileURL=${encodeURIComponent(t.url)}&title=${encodeURIComponent(document.title)}`;
    } catch (e) {
      w?.close();
      this.note((e as Error).message);
    }
  }

  async control(action: string, more: Record<string, unknown> = {}): Promise<void> {
    const writes = action === 'keep';
    if (writes) {
      this.writing = 'The last 30 s are being written';
      this.settle();
      this.note('Writing the last 30 s…', 'done');
    }
    try {
      const s = await this.v.conn.post<Status>('/api/control', { action, ...more });
      this.v.model.setStatus(s);
      this.update();
      if (s.kept) this.note(`Kept in ${s.kept}`, 'done');
      else say(`${action} done`);
    } catch (e) {
      this.note((e as Error).message);
    }
    if (writes) {
      this.writing = '';
      this.settle();
    }
  }

  // settle enables each control, or disables it with a reason.
  private settle(): void {
    const { v } = this;
    const m = v.model;
    const s = m.status;
    const why = !m.hello?.live
      ? 'A finished recording: no more samples come'
      : s?.done
        ? 'The recording has ended: no more samples come'
        : '';
    able(this.state, v.follow ? 'Follows the newest samples; Space freezes' : 'Follow again (End)', why);
    able(this.again, 'Record this process again, into another file');
    able(this.pause, s?.status?.paused ? 'Sample again' : 'Take no samples for a while; the threads run on');
    able(this.stop, 'End this recording; it stays on this page and in its file');
    able(this.interval, 'Time between two samples of a thread');
    able(this.spec, 'Threads to sample, as --threads takes them');
    able(this.kept, 'Write the last 30 s to a file of their own', this.writing);
    able(this.dumps, 'Flight recorders and their dumps');
    const none = !s || s.to > 0 ? '' : s.error ? 'The recording cannot be read' : s.done ? 'There are no samples in this recording' : '';
    able(this.share, 'Save one HTML file with page and data, of the selected range or all of it; it opens without sliver', none);
    this.share.hidden = !m.hello?.formats.some((f) => f.name === 'html');
    this.save.hidden = !m.hello?.formats.length;
    able(this.save, 'Write the recording, or the selected range alone, in another format', none);
    able(this.all, 'Show all (0)', none, false);
    able(this.range, 'Drag selects a range (else: Shift and drag, or drag on the time axis)', none, false);
    able(this.search.input, '', none, false);
  }

  private noteTimer = 0;
  private noted: HTMLElement | null = null; // the newest note while it is shown

  note(text: string, kind = 'problem'): void {
    this.noted = h('p', { class: kind }, text);
    this.notes();
    clearTimeout(this.noteTimer);
    this.noteTimer = window.setTimeout(() => {
      this.noted = null;
      this.notes();
    }, 8000);
  }

  // notes shows the newest note, otherwise the notes of the recording.
  private notes(): void {
    const { hello, status: s } = this.v.model;
    if (this.noted || !hello) {
      fill(el('notes'), this.noted);
      return;
    }
    const notes = [...hello.notes];
    if (s?.error && s.to) notes.unshift(`The recording could not be read to its end: ${s.error}`);
    if (s?.dropped) {
      const why = s.no_file ? ` There is no file for them: ${s.no_file}.` : '';
      notes.push(`The oldest ${count(s.dropped)} calls are no longer held; the recording has them.${why}`);
    }
    fill(
      el('notes'),
      ...notes.slice(0, 3).map((n) => h('p', null, n)),
      notes.length > 3 ? h('p', null, `and ${notes.length - 3} more`) : null,
    );
  }

  update(): void {
    const v = this.v;
    const m = v.model;
    const hello = m.hello;
    if (!hello) return;
    const s = m.status;
    const st = s?.status;
    const live = m.live;
    const text = !m.up
      ? 'offline'
      : !hello.live
        ? s?.error && !s.to
          ? 'unreadable'
          : s?.done
            ? 'recorded'
            : 'loading…'
        : s?.done
          ? `ended: ${s.reason || 'no more samples'}`
          : st?.paused
            ? 'paused'
            : !s?.to
              ? 'waiting'
              : v.frozen
                ? 'frozen'
                : v.follow
                  ? 'live'
                  : 'live, scrolled back';
    const mode = live && m.up ? (st?.paused || !s?.to ? 'paused' : v.follow ? 'live' : 'back') : 'done';
    const facts = [dur(Math.max(0, (s?.to ?? 0) - (s?.from ?? 0))), `${count(m.order.length)} thread${m.order.length === 1 ? '' : 's'}`];
    // Without enough room, the last facts are hidden.
    if (st?.lost || st?.losses) facts.push(st.lost ? `${count(st.lost)} lost` : 'incomplete');
    if (st) facts.push(`${count(st.samples)} samples`);
    // Of most stops the median may be 0: they were of threads that had no CPU.
    if (st?.samples)
      facts.push(
        ...(st.pause_p99
          ? [
              st.pause_p50 ? `held ${dur(st.pause_p50)} each` : `held up to ${dur(st.pause_p99)}`,
              `${st.overhead > 0 && st.overhead < 0.0005 ? 'less than 0.1 %' : percent(st.overhead)} of their time`,
            ]
          : ['no thread was held']),
      );
    const key = [
      text,
      mode,
      facts.join(),
      st?.paused,
      st?.interval_ns,
      st?.threads,
      st?.losses,
      s?.done,
      s?.error,
      !s?.to,
      m.up,
      hello.control.join(),
      m.gaps,
    ].join('|');
    if (key === this.key) return;
    this.key = key;
    fill(this.title, h('h1', null, hello.process.comm || 'sliver'), h('span', { class: 'soft' }, ` ${hello.process.pid || ''}`));
    this.title.title = (hello.process.cmdline ?? []).join(' ');
    fill(this.state, h('i', { class: `dot ${mode}` }), text);
    fill(this.facts, ...facts.map((f) => h('span', null, f)));
    this.facts.title =
      facts.join(' · ') +
      (st?.losses ? `\nlost: ${st.losses}` : st?.lost ? '\nlost: ticks and events that left no sample; gaps on the tracks' : '');
    const can = (a: string): boolean => live && hello.control.includes(a);
    // Elements stay the same ones, as a reader may be about to click on
    // it, choose from it or write into it.
    this.again.hidden = !(hello.live && s?.done && hello.control.includes('start'));
    this.pause.hidden = !can('pause');
    const pause = st?.paused ? 'Resume' : 'Pause';
    if (this.pause.textContent !== pause) fill(this.pause, pause);
    this.stop.hidden = !can('stop');
    this.interval.hidden = !can('interval');
    this.intervals(st?.interval_ns ?? hello.process.interval_ns);
    this.spec.hidden = !can('threads');
    if (document.activeElement !== this.spec) this.spec.value = st?.threads ?? 'all';
    this.kept.hidden = !can('keep');
    this.dumps.hidden = !hello.recorders;
    this.save.hidden = hello.formats.length === 0;
    this.settle();
    document.title = `${hello.process.comm} ${hello.process.pid} — sliver`;
    if (!this.noted) this.notes();
  }
}
