// Marks with notes at times: they are in the address, in the browser's storage by recording, and in a file
// that is shared from this page.

import { h } from './dom';
import { clock } from './format';
import type { Hello } from './proto';

// Mark is a note at a time, in ns since the recording's base.
export interface Mark {
  t: number;
  text: string;
}

const most = 200;
const longest = 400; // letters

function tidy(list: Mark[]): Mark[] {
  return list
    .filter((m) => Number.isFinite(m.t))
    .map((m) => ({ t: Math.round(m.t), text: String(m.text).slice(0, longest) }))
    .sort((a, b) => a.t - b.t)
    .slice(0, most);
}

// fileMark is a mark in a file: its time is in ns of CLOCK_MONOTONIC, as a file that holds a range has
// another base.
interface FileMark {
  at: string;
  text: string;
}

// withMarks puts marks into a file of the page, for a reader of [t0, t1].
export function withMarks(html: string, marks: Mark[], base: string, t0: number, t1: number): string {
  const list: FileMark[] = marks
    .filter((m) => m.t >= t0 && m.t <= t1)
    .map((m) => ({ at: String(BigInt(base) + BigInt(Math.round(m.t))), text: m.text }));
  const end = html.search(/<\/body>/); // the script that is this page has no such text
  if (!list.length || end < 0) return html;
  const json = JSON.stringify(list).replaceAll('<', '\\u003c'); // a note cannot end the element
  return `${html.slice(0, end)}<script type="application/json" id="marks">${json}</script>\n${html.slice(end)}`;
}

// carriedMarks are those in this file.
export function carriedMarks(base: string): Mark[] {
  const text = document.getElementById('marks')?.textContent;
  if (!text) return [];
  try {
    return tidy((JSON.parse(text) as FileMark[]).map((m) => ({ t: Number(BigInt(m.at) - BigInt(base)), text: m.text })));
  } catch {
    return [];
  }
}

export class Marks {
  list: Mark[] = [];
  private shown: HTMLElement | null = null; // what view returned
  onChange = (): void => {}; // by the reader
  onShow = (_t: number): void => {};

  constructor(
    private hello: () => Hello | null,
    private from: () => number,
  ) {}

  private key(): string {
    const m = this.hello();
    return `sliver marks ${m?.process.pid} ${m?.wall}`;
  }

  set(list: Mark[]): void {
    this.list = tidy(list);
    this.shown = null;
  }

  // renew makes view build its rows again.
  renew(): void {
    this.shown = null;
  }

  // kept are the marks of an earlier visit, otherwise those of the file.
  kept(): Mark[] {
    try {
      const s = localStorage.getItem(this.key());
      if (s) return tidy(JSON.parse(s) as Mark[]);
    } catch {
      // Storage is unavailable or has other content.
    }
    return carriedMarks(this.hello()?.base ?? '0');
  }

  // changed keeps the marks. A note whose text changed keeps its row, which the reader may be about to leave
  // by a click.
  private changed(text = false): void {
    this.list.sort((a, b) => a.t - b.t);
    if (!text) this.shown = null;
    try {
      localStorage.setItem(this.key(), JSON.stringify(this.list));
    } catch {
      // The address has them.
    }
    this.onChange();
  }

  // add puts a mark at a time and returns it; null: there are too many.
  add(t: number): Mark | null {
    if (this.list.length >= most) return null;
    const used = new Set(this.list.map((m) => m.text));
    let n = 1;
    while (used.has(`Note ${n}`)) n++;
    const m = { t: Math.round(t), text: `Note ${n}` };
    this.list.push(m);
    this.changed();
    return m;
  }

  // view lists them; the text of one at a time is selected, to be overwritten.
  view(middle: () => number, edited?: number): HTMLElement {
    if (this.shown) return this.shown;
    const rows = this.list.map((m) => {
      const i = h('input', {
        value: m.text,
        maxlength: longest,
        'aria-label': 'Note',
        onchange: () => {
          m.text = i.value.trim() || m.text;
          this.changed(true);
        },
        onkeydown: (e: Event) => (e as KeyboardEvent).key === 'Enter' && i.blur(),
      });
      if (m.t === edited) {
        requestAnimationFrame(() => {
          i.focus();
          i.select();
        });
      }
      const at = clock(m.t - this.from(), 1000);
      return h(
        'tr',
        null,
        h('td', { class: 'num' }, h('button', { class: 'link', title: 'Show this time', onclick: () => this.onShow(m.t) }, at)),
        h('td', { class: 'note' }, i),
        h(
          'td',
          null,
          h(
            'button',
            {
              class: 'icon',
              'aria-label': `Remove the note at ${at}`,
              title: 'Remove',
              onclick: () => {
                this.list = this.list.filter((x) => x !== m);
                this.changed();
              },
            },
            '×',
          ),
        ),
      );
    });
    this.shown = h(
      'div',
      { class: 'tables' },
      h(
        'div',
        { class: 'tools' },
        h('button', { class: 'small', onclick: () => void this.add(middle()) }, 'Add a note'),
        h('span', { class: 'soft' }, 'B adds one at the pointer. Notes are in this address and in a file saved with Share.'),
      ),
      rows.length
        ? h(
            'table',
            { class: 'grid notes' },
            h('caption', { class: 'away' }, 'Notes'),
            h(
              'thead',
              null,
              h(
                'tr',
                null,
                h('th', { scope: 'col', class: 'num' }, 'Time'),
                h('th', { scope: 'col' }, 'Note'),
                h('th', { scope: 'col' }, h('span', { class: 'away' }, 'Remove')),
              ),
            ),
            h('tbody', null, ...rows),
          )
        : h('p', { class: 'soft pad' }, 'There are no notes yet.'),
    );
    return this.shown;
  }
}
