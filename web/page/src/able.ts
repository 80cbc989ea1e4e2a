// Controls that cannot act are disabled and say why; they come back when they
// can, and with them the focus that one of them had.

type Control = HTMLButtonElement | HTMLInputElement | HTMLSelectElement;

let lost = ''; // the reason for a missing connection; '' while connected
const known = new WeakMap<Control, { title: string; why: string; needs: boolean }>();
let left: Control | null = null; // had the focus when it was disabled

// able sets a control's title and the reason that disables it, '' for none; one that needs
// the connection cannot either while that is lost.
export function able<T extends Control>(c: T, title: string, why = '', needs = true): T {
  known.set(c, { title, why, needs });
  c.toggleAttribute('data-needs', needs);
  look(c);
  return c;
}

// cannot is why a control does nothing at present, '' if it can act.
function cannot(c: Control): string {
  const k = known.get(c);
  return k ? k.why || (k.needs ? lost : '') : '';
}

// connected updates all controls for a connection: '' or the reason that it is missing.
export function connected(why: string): void {
  if (why === lost) return;
  lost = why;
  for (const c of document.querySelectorAll<Control>('[data-needs]')) look(c);
}

function look(c: Control): void {
  const why = cannot(c);
  const title = why || known.get(c)!.title;
  if (c.title !== title) c.title = title;
  // The title of some is their description; of those without a text it is their name.
  if (why) c.setAttribute('aria-description', why);
  else c.removeAttribute('aria-description');
  if (c.disabled === !!why) return;
  if (why && document.activeElement === c) left = c;
  c.disabled = !!why;
  if (!why && left === c) {
    left = null;
    if (document.activeElement === document.body && c.isConnected && !c.hidden) c.focus();
  }
}
