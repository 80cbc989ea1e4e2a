// Settings of the view: what colors show, which kinds of code are shown, what the mouse does.

import { able } from './able';
import { el, fill, h, menu, say } from './dom';
import { theme } from './color';
import { type ColorBy, kindFill } from './model';
import { interpreted, kinds } from './own';
import { editorExample, editorProblem, setting } from './settings';
import type { Timeline } from './timeline';

const words: Record<string, string> = { native: 'native code', kernel: 'the kernel' }; // not languages
const kindWords = kinds.map((k): [string, string] => [k.kind, words[k.kind] ?? k.title]);
const colorWords: [ColorBy, string][] = [
  ['state', 'state and module'],
  ['function', 'function'],
  ['module', 'module'],
  ['kind', 'kind of code'],
];

export class Look {
  readonly button = h('button', { class: 'small', title: 'Colors, kinds of code, and what the mouse does' }, 'View');
  onChange = (_kinds: boolean): void => {};
  onRuntime = (_on: boolean): void => {};

  constructor(private v: Timeline) {
    if (setting('gestures') === 'map') v.gestures = 'map';
    menu(this.button, () => this.items());
  }

  // shown reports whether calls of a kind are shown.
  private shown(kind: string): boolean {
    return !this.v.conn.kinds || this.v.conn.kinds.split(',').includes(kind);
  }

  // color makes colors show something.
  color(by: ColorBy): void {
    this.v.model.recolor(by);
    this.v.wake();
    this.onChange(false);
  }

  // kinds shows calls of these kinds only: a comma list; '' is all.
  kinds(list: string): void {
    const known = kindWords.map(([k]) => k);
    const want = list.split(',').filter((k) => known.includes(k));
    this.v.sift(want.length === known.length ? '' : known.filter((k) => want.includes(k)).join(), this.v.conn.runtime);
    this.button.setAttribute('aria-pressed', String(this.v.conn.kinds !== ''));
    this.onChange(true);
  }

  // runtime shows the native code of interpreters above the functions that they run, or leaves it out.
  runtime(on: boolean): void {
    if (this.v.sift(this.v.conn.kinds, on)) this.onChange(true);
  }

  private toggle(kind: string): void {
    if (!this.v.conn.up) return; // the calls on the screen would go without a replacement
    const now = kindWords.map(([k]) => k).filter((k) => this.shown(k) !== (k === kind));
    const there = now.filter((k) => this.v.model.kinds.has(k));
    if (!there.length) {
      say('at least one kind must stay');
      return;
    }
    this.kinds(now.join());
    say(this.shown(kind) ? `${kind} is shown` : `${kind} is left out`);
  }

  // editor asks for the address that opens a file in the user's editor.
  private editor(): void {
    const d = el<HTMLDialogElement>('dialog');
    const field = h('input', { type: 'text', id: 'editor', value: setting('editor'), placeholder: editorExample, spellcheck: 'false' });
    const problem = h('p', { class: 'problem', role: 'alert' });
    const save = (e: Event): void => {
      e.preventDefault();
      const why = editorProblem(field.value.trim());
      if (why) {
        fill(problem, why);
        return;
      }
      setting('editor', field.value.trim());
      d.close();
      this.onChange(false);
    };
    fill(
      d,
      h(
        'div',
        { class: 'head' },
        h('h2', null, 'Links to your editor'),
        h('button', { class: 'icon', 'aria-label': 'Close', onclick: () => d.close() }, '×'),
      ),
      h(
        'form',
        { onsubmit: save },
        h('p', null, h('label', { for: 'editor' }, 'The address that opens a file; {file} is its path, {line} its line:')),
        field,
        problem,
        h(
          'p',
          { class: 'soft' },
          `For example ${editorExample}, idea://open?file={file}&line={line}. Empty: no links. Kept in this browser.`,
        ),
        h('div', { class: 'buttons' }, h('button', { class: 'small' }, 'Save')),
      ),
    );
    d.showModal();
    field.focus();
  }

  private items(): HTMLElement[] {
    const m = this.v.model;
    const out: HTMLElement[] = [h('div', { class: 'soft pad', role: 'presentation' }, 'Colors show')];
    for (const [by, word] of colorWords) {
      out.push(h('button', { role: 'menuitemradio', 'aria-checked': String(m.colorBy === by), onclick: () => this.color(by) }, word));
    }
    out.push(h('div', { class: 'soft pad', role: 'presentation' }, 'Mouse'));
    for (const [g, word] of [
      ['perfetto', 'drag selects, wheel scrolls, Ctrl+wheel zooms'],
      ['map', 'drag moves, wheel zooms'],
    ] as const) {
      out.push(
        h(
          'button',
          {
            role: 'menuitemradio',
            'aria-checked': String(this.v.gestures === g),
            onclick: () => {
              this.v.gestures = g;
              setting('gestures', g);
            },
          },
          word,
        ),
      );
    }
    const { groups } = this.v.threads;
    if (groups.processes) {
      out.push(h('div', { class: 'soft pad', role: 'presentation' }, 'Processes'));
      for (const [by, word] of [
        ['cpu', 'by CPU time'],
        ['wait', 'by waiting time'],
      ] as const) {
        const pick = (): void => {
          groups.by = by;
          this.v.layout();
          this.onChange(false);
        };
        out.push(h('button', { role: 'menuitemradio', 'aria-checked': String(groups.by === by), onclick: pick }, word));
      }
    } else {
      out.push(
        h('div', { class: 'soft pad', role: 'presentation' }, 'Threads'),
        h(
          'button',
          {
            role: 'menuitemcheckbox',
            'aria-checked': String(groups.on),
            title: 'Threads whose names differ in numbers alone',
            onclick: () => {
              groups.on = !groups.on;
              this.v.layout();
              this.onChange(false);
            },
          },
          'grouped by pool',
        ),
      );
    }
    out.push(
      h('div', { class: 'soft pad', role: 'presentation' }, 'Source'),
      h('button', { role: 'menuitem', onclick: () => this.editor() }, 'Links to your editor…'),
    );
    if (!this.v.conn.sifts) return out;
    const kinds = kindWords.filter(([k]) => m.kinds.has(k) || !this.shown(k));
    if (kinds.length < 2) return out;
    const { runtime } = this.v.conn;
    out.push(h('div', { class: 'soft pad', role: 'presentation' }, 'Code that is shown'));
    for (const [k, word] of kinds) {
      const color = theme().fills[kindFill(k)];
      out.push(
        able(
          h(
            'button',
            { role: 'menuitemcheckbox', 'aria-checked': String(this.shown(k)), onclick: () => this.toggle(k) },
            m.colorBy === 'kind' ? h('i', { class: 'swatch', style: { background: color } }) : null,
            word,
          ),
          '',
        ),
      );
    }
    if (interpreted(m.kinds) && this.shown('native')) {
      const turn = (): void => {
        if (!this.v.conn.up) return;
        this.onRuntime(!runtime);
        say(runtime ? "the interpreter's own code is left out" : "the interpreter's own code is shown");
      };
      const title = 'Native code of the interpreter above functions that it runs; left out, its time is theirs';
      const item = h(
        'button',
        { role: 'menuitemcheckbox', 'aria-checked': String(runtime), title, onclick: turn },
        "the interpreter's own",
      );
      out.push(able(item, title));
    }
    return out;
  }
}
