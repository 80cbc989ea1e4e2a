// The column of labels beside the tracks of a band.

import { fill, h } from './dom';

// Line is the label of one track at y, of a group's head if heads is set.
export interface Line {
  y: number;
  h: number;
  heads?: boolean;
  nodes: (HTMLElement | string | null)[];
}

export class Column {
  private stamp = '';

  constructor(readonly list: HTMLElement) {}

  // show replaces the labels if stamp, which must name all they depend on, differs from the last one's. The
  // focus stays on the element with the same data-key.
  show(stamp: string, lines: () => Line[]): void {
    if (stamp === this.stamp) return;
    this.stamp = stamp;
    const focused = this.list.contains(document.activeElement) ? (document.activeElement as HTMLElement).dataset.key : undefined;
    fill(
      this.list,
      ...lines().map((l) => h('li', { class: l.heads ? 'group' : undefined, style: { top: `${l.y}px`, height: `${l.h}px` } }, ...l.nodes)),
    );
    if (focused !== undefined) this.list.querySelector<HTMLElement>(`[data-key="${focused}"]`)?.focus({ preventScroll: true });
  }
}
