// The tabs of the analysis panel.

import { h } from './dom';

export const tabs = ['overview', 'flame', 'tree', 'functions', 'waits', 'locks', 'traced', 'io', 'compare', 'notes'] as const;
export type Tab = (typeof tabs)[number];
export const tabWords: Record<Tab, string> = {
  overview: 'Overview',
  flame: 'Flame graph',
  tree: 'Call tree',
  functions: 'Functions',
  waits: 'Waits',
  locks: 'Locks',
  traced: 'Traced calls',
  io: 'I/O',
  compare: 'Compare',
  notes: 'Notes',
};

// tabList is the row of tabs, of which one is open. The arrow keys go through it.
export function tabList(names: readonly Tab[], open: Tab, show: (t: Tab) => void): HTMLElement {
  return h(
    'div',
    {
      role: 'tablist',
      class: 'tabs',
      'aria-label': 'Analysis',
      onkeydown: (e: Event) => {
        const k = (e as KeyboardEvent).key;
        if (k !== 'ArrowLeft' && k !== 'ArrowRight') return;
        e.stopPropagation();
        const to = names[(names.indexOf(open) + (k === 'ArrowRight' ? 1 : names.length - 1)) % names.length]!;
        show(to);
        document.getElementById(`tab-${to}`)?.focus();
      },
    },
    ...names.map((t) =>
      h(
        'button',
        {
          role: 'tab',
          id: `tab-${t}`,
          'aria-selected': String(t === open),
          tabindex: t === open ? 0 : -1,
          'aria-controls': 'panel-body',
          onclick: () => show(t),
        },
        tabWords[t],
      ),
    ),
  );
}
