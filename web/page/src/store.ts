// The store of the view: what the reader chose, as the page's address has it, and its history, which is the
// browser's. It is all in the fragment, which browsers do not send; a reload or a shared link comes back to it.

export type Words = URLSearchParams;

// Part saves the choices of one part of the page, and shows those of an address: both name each word of it
// once. A default value has no word.
export interface Part {
  save(w: Words): void;
  load(w: Words, opened: boolean): void; // opened: a recording has come to be shown
}

// num is a number, undefined if the word is not there or is none.
export const num = (w: Words, key: string): number | undefined => {
  const v = w.get(key);
  return v === null || !Number.isFinite(Number(v)) ? undefined : Number(v);
};

// list is a list of numbers, those of a fixed length only if the word has as many.
export const list = (w: Words, key: string, length?: number): number[] | undefined => {
  const said = w.get(key);
  const all = said ? said.split(',').map(Number).filter(Number.isFinite) : undefined;
  return length !== undefined && all?.length !== length ? undefined : all;
};

// put writes a word that says something.
export const put = (w: Words, key: string, value: string | number | undefined | false): void => {
  if (value) w.set(key, String(value));
};

// lists writes a list that is not empty, in whole numbers.
export const lists = (w: Words, key: string, values: readonly number[] | undefined): void => put(w, key, values?.map(Math.round).join(','));

const address = (): Words => new URLSearchParams(location.hash.slice(1));
export const token = (): string => address().get('token') ?? '';

const settles = 250; // ms without a change until the address has it
const follows = 400; // ms in which changes follow from an address that was loaded, if the reader does nothing

// States of a store: closed until the page shows something; at rest; a change waits to be written, which becomes
// a step of history or not; an address was loaded, and what changes now follows from it.
type Is = 'closed' | 'rest' | 'changed' | 'stepped' | 'loading';

export class Store {
  private is: Is = 'closed';
  private timer: ReturnType<typeof setTimeout> | undefined;
  private readonly token = token();
  private readonly given = address(); // what the page was opened with

  // Parts load in this order: later ones may use what earlier ones show.
  constructor(
    private parts: Part[],
    reload: () => void, // another token
  ) {
    // Back, Forward, or another address of this page that was typed or pasted.
    window.addEventListener('popstate', () => {
      if (token() !== this.token) reload();
      else if (this.is !== 'closed') this.load(address(), false);
    });
    for (const by of ['pointerdown', 'keydown', 'wheel']) window.addEventListener(by, () => this.act(), { capture: true, passive: true });
  }

  // open shows what the page was opened with, of a recording that has come.
  open(): void {
    this.load(this.given, true);
  }

  // close makes the store deaf until the next open: the recording is another one.
  close(): void {
    clearTimeout(this.timer);
    this.is = 'closed';
  }

  // act: what changes now may be what the reader does.
  private act(): void {
    if (this.is !== 'loading') return;
    clearTimeout(this.timer);
    this.is = 'rest';
  }

  private load(words: Words, opened: boolean): void {
    clearTimeout(this.timer);
    this.is = 'loading';
    this.timer = setTimeout(() => (this.is = 'rest'), follows);
    for (const p of this.parts) p.load(words, opened);
  }

  // keep puts the view into the address, a moment later.
  keep(): void {
    if (this.is !== 'rest') return;
    this.wait('changed');
  }

  // step is keep for what Back shall undo: a selection, a jump, another tab.
  step(): void {
    if (this.is === 'changed') this.is = 'stepped';
    else if (this.is === 'rest') this.wait('stepped');
  }

  private wait(is: Is): void {
    this.is = is;
    this.timer = setTimeout(() => {
      const step = this.is === 'stepped';
      this.is = 'rest';
      this.write(step);
    }, settles);
  }

  private write(step: boolean): void {
    const w = new URLSearchParams();
    put(w, 'token', this.token);
    for (const p of this.parts) p.save(w);
    const hash = `#${w.toString().replaceAll('%2C', ',').replaceAll('%3A', ':')}`;
    if (hash === location.hash) return;
    if (step) history.pushState(null, '', hash);
    else history.replaceState(null, '', hash);
  }
}
