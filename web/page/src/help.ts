// The keys and the legend.

import { parts, partWords } from './analysis';
import { el, fill, h } from './dom';
import type { Model } from './model';

const keys: [string, string][] = [
  ['Drag', 'select a time range (a drag on the time axis does too)'],
  ['Shift + drag', 'move'],
  ['Wheel', 'scroll through the tracks'],
  ['Ctrl + wheel, pinch', 'zoom at the pointer'],
  ['Shift + wheel', 'move'],
  ['W S', 'zoom in, out'],
  ['A D, ← →', 'move left, right'],
  ['↑ ↓', 'scroll through the tracks'],
  ['Double-click', 'zoom to a call'],
  ['Right click, Shift + F10', 'menu of a call, a thread, a lock'],
  ['Tap', 'select a call; with Select above, a finger selects a time range'],
  ['0', 'show all'],
  ['Space', 'freeze, go on'],
  ['End', 'follow the newest samples'],
  ['Home', 'go to the beginning'],
  ['Enter', 'select the call in the middle'],
  ['[ ]', 'previous, next call of the same function'],
  ['↑ ↓ with a call selected', 'its caller, its callee'],
  ['F', 'zoom to the selected call'],
  ['M', 'select the time of the selected call'],
  ['B', 'note at the pointer'],
  ['/', 'search; /text/ is a regular expression; Enter goes to the next hit'],
  ['Alt + ↑ ↓ on a thread', 'move it'],
  ['Alt + ← →', 'back, forward'],
  ['Esc', 'close, step by step'],
  ['?', 'this help'],
];

export function help(model: Model): void {
  const d = el<HTMLDialogElement>('dialog');
  if (d.open) {
    d.close();
    return;
  }
  const c = (name: string, text: string): HTMLElement => h('li', null, h('i', { class: `swatch ${name}` }), text);
  fill(
    d,
    h(
      'div',
      { class: 'head' },
      h('h2', null, 'Keys'),
      h('button', { class: 'icon', 'aria-label': 'Close', onclick: () => d.close() }, '×'),
    ),
    h('dl', { class: 'keys' }, ...keys.flatMap(([k, t]) => [h('dt', null, h('kbd', null, k)), h('dd', null, t)])),
    h('h2', null, 'What the colors mean'),
    h(
      'p',
      { class: 'soft' },
      [
        'The strip above each track shows what the thread did.',
        'Calls are pale while their thread waits, in a tint by the reason.',
        'The hue of your own code shows its module; libraries and runtimes are grey.',
        "An interpreter's own code above functions that it runs is left out; View shows it.",
      ].join(' '),
    ),
    h(
      'ul',
      { class: 'legend' },
      ...parts.map((p) => c(`part-${p}`, partWords[p])),
      c('lock', 'waits for a lock; the arrow leads to its holder. A dark arrow leads from what ended the wait of another process'),
      c('park', 'waits for a lock without a known holder'),
      c('pause', 'stopped by sliver for a sample'),
      c('gap', 'no samples'),
    ),
    h(
      'p',
      { class: 'soft' },
      [
        'Below the threads are counters, and for each lock who held it while others waited (a color for each thread) and how many waited.',
        'For each file there is how many threads were in its reads, writes, and other operations (the darkest), if I/O was recorded.',
      ].join(' '),
    ),
    h(
      'p',
      { class: 'soft' },
      [
        'Calls are seen at samples: an edge is right within one interval.',
        'Calls thinner than a pixel are drawn as one block, as dense as they are; hover shows how many.',
      ].join(' '),
    ),
    h(
      'p',
      { class: 'soft' },
      [
        'Goroutines, asyncio tasks and virtual threads have tracks below those of threads:',
        'what each did, on whichever thread, and what it waited for.',
        'The file for Perfetto (Save) has their calls, too.',
      ].join(' '),
    ),
    h('p', { class: 'soft' }, `sliver ${model.hello?.program ?? ''}`),
  );
  d.showModal();
}
