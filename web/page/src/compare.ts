// The tab that compares a range, or another recording, with what the panel covers.

import type { Analysis } from './analysis';
import { able } from './able';
import type { Desk } from './desk';
import { fill, h } from './dom';
import { clock, dur, percent } from './format';
import { sortable } from './table';
import { build, diff, type FuncRow, table } from './tree';

interface Before {
  label: string;
  a: Analysis;
}

export class Compare {
  before: Before | null = null;
  private share = true; // both are scaled to the same sum

  constructor(private d: Desk) {}

  draw(): void {
    const v = this.d.v;
    const r = v.range;
    const mark = r
      ? h(
          'button',
          {
            class: 'small',
            onclick: () => {
              this.before = { label: `${dur(r.t1 - r.t0)} from ${clock(r.t0 - v.model.from(), 1e6)}`, a: this.d.analysis! };
              this.d.draw();
            },
          },
          'Take this range as “before”',
        )
      : null;
    const other = v.model.hello?.compare
      ? able(h('button', { class: 'small', onclick: () => void this.other() }, `Take ${v.model.hello.compare} as “before”`), '')
      : null;
    const tools = h(
      'div',
      { class: 'tools' },
      this.d.weightPick(),
      mark,
      other,
      h(
        'button',
        {
          class: 'small',
          'aria-pressed': String(this.share),
          title: 'Scale both to the same sum',
          onclick: () => {
            this.share = !this.share;
            this.d.draw();
          },
        },
        'By share',
      ),
    );
    if (!this.before) {
      if (v.model.hello?.compare && !this.comparing) void this.other();
      fill(
        this.d.body,
        tools,
        h(
          'p',
          { class: 'soft pad' },
          this.comparing
            ? 'Reading the other recording…'
            : 'Take this range as “before”, then select another one on the timeline: the graph and the table show what changed.',
        ),
      );
      return;
    }
    const was = this.before.a;
    const a = build(this.d.columns(was.tree), this.d.weight, (i) => was.funcs[i], this.d.filter());
    const d = diff(a, this.d.root!, this.share);
    this.d.flame.differs = true;
    const rows = table(d).filter((x) => x.self || x.otherSelf || x.total || x.otherTotal);
    const total = d.value || 1;
    const delta = (now: number, then: number): string => (now >= then ? '+' : '−') + this.d.amount(Math.abs(now - then));
    const t = sortable<FuncRow>(
      'compare',
      this.d.sorts,
      'change',
      'What changed',
      rows,
      [
        { key: 'name', title: 'Function', by: (x) => x.name, cell: (x) => this.d.nameCell(x.name, x.func) },
        { key: 'before', title: 'Self before', num: true, wide: true, by: (x) => x.otherSelf, cell: (x) => this.d.amount(x.otherSelf) },
        { key: 'after', title: 'Self now', num: true, by: (x) => x.self, cell: (x) => this.d.amount(x.self) },
        {
          key: 'change',
          title: 'Change',
          num: true,
          by: (x) => Math.abs(x.self - x.otherSelf),
          cell: (x) => h('span', { class: x.self >= x.otherSelf ? 'more' : 'less' }, delta(x.self, x.otherSelf)),
        },
        {
          key: 'changep',
          title: 'of all',
          num: true,
          by: (x) => x.self - x.otherSelf,
          cell: (x) => (x.self >= x.otherSelf ? '+' : '−') + percent(Math.abs(x.self - x.otherSelf) / total),
        },
      ],
      () => this.d.draw(),
    );
    fill(
      this.d.body,
      tools,
      h(
        'p',
        { class: 'soft pad' },
        `Before: ${this.before.label}${this.share ? ', scaled to the same sum' : ''}. Orange takes more now, blue less.`,
      ),
      this.d.flame.box,
      t,
    );
    this.d.flame.up = this.d.up;
    this.d.flame.set(d, 'Differential flame graph');
  }

  private comparing = false;

  private async other(): Promise<void> {
    this.comparing = true;
    try {
      this.before = {
        label: this.d.v.model.hello!.compare!,
        a: await this.d.v.conn.ask<Analysis>('analysis', { src: 1, ...(this.d.idle ? { idle: true } : {}) }),
      };
    } catch (e) {
      this.d.problem = (e as Error).message;
    }
    this.d.draw();
  }
}
