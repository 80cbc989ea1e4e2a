// Controls of the panel's tools.

import { h } from './dom';

// select makes a labeled list to choose from.
export function select<T extends string>(label: string, value: T, options: [T, string][], set: (v: T) => void): HTMLElement {
  const s = h(
    'select',
    { 'aria-label': label, onchange: () => set(s.value as T) },
    ...options.map(([k, t]) => h('option', { value: k, selected: k === value }, t)),
  );
  return h('label', { class: 'pick' }, h('span', null, label), s);
}

// field makes an input for a pattern.
export function field(label: string, value: string, set: (s: string) => void): HTMLElement {
  const i = h('input', {
    type: 'search',
    value,
    placeholder: label,
    'aria-label': label,
    title: `${label}: text or regular expression`,
    onchange: () => set(i.value),
  });
  return i;
}

// grip makes an element change the height of a box above the window's lower edge by a drag.
export function grip(g: HTMLElement, box: HTMLElement, resized: () => void): void {
  g.addEventListener('pointerdown', (e) => {
    g.setPointerCapture(e.pointerId);
    const y = e.clientY;
    const was = box.offsetHeight;
    const move = (m: PointerEvent): void => {
      box.style.height = `${Math.max(80, Math.min(innerHeight * 0.85, was + y - m.clientY))}px`;
      resized();
    };
    g.addEventListener('pointermove', move);
    g.addEventListener('pointerup', () => g.removeEventListener('pointermove', move), { once: true });
  });
}

// nameCell is a name in a table; of a function it has what a click does.
export function nameCell(name: string, act: { onName(): void; callers(): void } | false): HTMLElement {
  if (!act) return h('span', { title: name }, name);
  return h(
    'span',
    { class: 'fn' },
    h('button', { class: 'link', title: `${name}: light up its calls`, onclick: () => act.onName() }, name),
    h(
      'button',
      {
        class: 'small quiet',
        title: 'Callers and callees',
        'aria-label': `Callers and callees of ${name}`,
        onclick: () => act.callers(),
      },
      '⇅',
    ),
  );
}
