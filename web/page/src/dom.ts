// Elements are made here and nowhere else; text is always text, never HTML.

type Child = Node | string | number | null | undefined | false;
type Props = Record<string, unknown>;

export function h<K extends keyof HTMLElementTagNameMap>(tag: K, props?: Props | null, ...kids: Child[]): HTMLElementTagNameMap[K] {
  const e = document.createElement(tag);
  if (props) {
    for (const [k, v] of Object.entries(props)) {
      if (v === undefined || v === null || v === false) continue;
      if (k.startsWith('on') && typeof v === 'function') e.addEventListener(k.slice(2), v as EventListener);
      else if (k === 'class') e.className = String(v);
      else if (k === 'style') for (const [p, x] of Object.entries(v as Record<string, string>)) e.style.setProperty(p, x);
      else if (k === 'value' || k === 'checked' || k === 'disabled' || k === 'hidden') (e as unknown as Props)[k] = v;
      else e.setAttribute(k, v === true ? '' : String(v));
    }
  }
  put(e, ...kids);
  return e;
}

export function put(e: Element, ...kids: Child[]): void {
  for (const k of kids) if (k !== null && k !== undefined && k !== false) e.append(k instanceof Node ? k : String(k));
}

export function fill(e: Element, ...kids: Child[]): void {
  e.replaceChildren();
  put(e, ...kids);
}

export function el<T extends HTMLElement>(id: string): T {
  return document.getElementById(id) as T;
}

// say announces a text to screen readers.
export function say(text: string): void {
  el('say').textContent = text;
}

// fit gives a canvas the size of its box in device pixels and returns its
// context, scaled to CSS pixels.
export function fit(c: HTMLCanvasElement, w: number, hgt: number): CanvasRenderingContext2D {
  const dpr = window.devicePixelRatio || 1;
  const pw = Math.max(1, Math.round(w * dpr));
  const ph = Math.max(1, Math.round(hgt * dpr));
  if (c.width !== pw || c.height !== ph) {
    c.width = pw;
    c.height = ph;
    c.style.width = `${w}px`;
    c.style.height = `${hgt}px`;
  }
  const g = c.getContext('2d', { alpha: false })!;
  g.setTransform(dpr, 0, 0, dpr, 0, 0);
  return g;
}

// popup shows a menu that place puts somewhere, and closes it after a choice, Escape, or a press elsewhere than
// in it and on keep. Closed is called then, after Escape with true. It returns what closes it.
export function popup(
  items: HTMLElement[],
  place: (m: HTMLElement) => void,
  closed: (escaped: boolean) => void,
  keep?: HTMLElement,
): () => void {
  shut?.();
  const open = h('div', { class: 'menu', role: 'menu' }, ...items);
  const area = h('section', { 'aria-label': 'Menu' }, open); // screen readers list it among the page's parts
  const close = (escaped = false): void => {
    if (shut !== done) return;
    shut = null;
    area.remove();
    document.removeEventListener('pointerdown', press);
    closed(escaped);
  };
  const done = (): void => close();
  const press = (e: Event): void => {
    if (!open.contains(e.target as Node) && !keep?.contains(e.target as Node)) close();
  };
  shut = done;
  document.body.append(area);
  place(open);
  open.querySelector<HTMLElement>('[role^=menuitem]')?.focus();
  open.addEventListener('click', (e) => {
    if ((e.target as HTMLElement).closest('[role^=menuitem]')) close();
  });
  open.addEventListener('contextmenu', (e) => e.preventDefault());
  open.addEventListener('keydown', (e) => {
    const all = [...open.querySelectorAll<HTMLElement>('[role^=menuitem]')];
    const i = all.indexOf(document.activeElement as HTMLElement);
    if (e.key === 'Escape') close(true);
    else if (e.key === 'ArrowDown') all[(i + 1) % all.length]?.focus();
    else if (e.key === 'ArrowUp') all[(i + all.length - 1) % all.length]?.focus();
    else return;
    e.preventDefault();
    e.stopPropagation();
  });
  document.addEventListener('pointerdown', press);
  return done;
}

let shut: (() => void) | null = null; // closes the menu that is open

// menu makes a button open one.
export function menu(button: HTMLButtonElement, items: () => HTMLElement[]): void {
  let close: (() => void) | null = null;
  button.setAttribute('aria-haspopup', 'menu');
  button.setAttribute('aria-expanded', 'false');
  button.addEventListener('click', () => {
    if (close) return close();
    button.setAttribute('aria-expanded', 'true');
    close = popup(
      items(),
      (open) => {
        const r = button.getBoundingClientRect();
        open.style.left = `${Math.max(4, Math.min(r.left, innerWidth - open.offsetWidth - 4))}px`;
        // Where there is more room: below the button or above it.
        const below = innerHeight - r.bottom - 8;
        const above = r.top - 8;
        open.style.maxHeight = `${Math.max(below, above, 120)}px`;
        if (open.offsetHeight <= below || below >= above) open.style.top = `${r.bottom + 4}px`;
        else open.style.bottom = `${innerHeight - r.top + 4}px`;
      },
      (escaped) => {
        close = null;
        button.setAttribute('aria-expanded', 'false');
        if (escaped) button.focus();
      },
      button,
    );
  });
}
