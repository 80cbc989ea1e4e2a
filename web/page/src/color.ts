// Colours. A function has the same one on every visit, by a hash of its name.
// Any two of the sixteen lie further apart than 13 in CIE L*a*b*, also as seen
// without red, green or blue cones (by the matrices of Machado, Oliveira and
// Fernandes, 2009), and the first six, for the kinds of code, further than 18;
// text on them keeps a contrast above 4.5. Light and dark ones stand in the order
// in which they are most alike, so that a function looks about the same in both. A test of the page holds them to it.

export const fills = 16; // colours that functions have

export interface Theme {
  dark: boolean;
  bg: string;
  panel: string;
  line: string;
  faint: string;
  text: string;
  soft: string;
  onFill: string;
  fills: string[];
  dim: string;
  dimText: string;
  unknown: string;
  accent: string;
  hit: string;
  state: Record<number, string>;
  lock: string;
  park: string;
  gap: string;
  pause: string;
  load: string;
  more: string; // a range that grew
  less: string;
}

const lightFills = [
  '#f3668e', '#9cf4d4', '#b686ba', '#7191f8', '#f8d466', '#bdf19f', '#eea9f4', '#969b45',
  '#3ea695', '#beac3b', '#fad8fb', '#67d2c6', '#f8b273', '#a488d8', '#f68f7c', '#cad0a6',
];
const darkFills = [
  '#ee617e', '#6dd8cc', '#9c68b1', '#529fed', '#a57209', '#b5d17a', '#c86598', '#778145',
  '#458963', '#a49e48', '#a9a1c8', '#9bbcf9', '#f0c057', '#5277db', '#ed99ab', '#d6c59e',
];

export const light: Theme = {
  dark: false, bg: '#ffffff', panel: '#f5f7f9', line: '#d8dee4', faint: '#eef1f4', text: '#17202a', soft: '#56636f', onFill: '#10171d',
  fills: lightFills, dim: '#e6eaed', dimText: '#5b6771', unknown: '#d3d9de', accent: '#0b62a4', hit: '#b3125f',
  state: { 1: '#2f9e6e', 2: '#e0a21b', 3: '#b9c6d2', 4: '#b5532a', 5: '#9b4fa0', 6: '#6b7680', 7: '#6b7680' },
  lock: '#c2410c', park: '#e5c3b3', gap: '#8b95a0', pause: '#a21caf', load: '#5a9fd0', more: '#d9822b', less: '#3b86c4',
};

export const dark: Theme = {
  dark: true, bg: '#12171c', panel: '#1a2128', line: '#303a44', faint: '#1e262e', text: '#e6ebf0', soft: '#9fadb9', onFill: '#080b0e',
  fills: darkFills, dim: '#2a333c', dimText: '#a3b0bb', unknown: '#6d7883', accent: '#6cb8f0', hit: '#ff7ac0',
  state: { 1: '#35b27c', 2: '#e5ae35', 3: '#46535f', 4: '#d9703f', 5: '#b56cba', 6: '#7c8893', 7: '#7c8893' },
  lock: '#fb923c', park: '#5b4636', gap: '#76828d', pause: '#d65fe0', load: '#4c93c6', more: '#e0903d', less: '#5ba3de',
};

const query = matchMedia('(prefers-color-scheme: dark)');

export function theme(): Theme {
  return query.matches ? dark : light;
}

export function onTheme(f: () => void): void {
  query.addEventListener('change', f);
}

export function hash(s: string): number {
  let x = 2166136261;
  for (let i = 0; i < s.length; i++) x = Math.imul(x ^ s.charCodeAt(i), 16777619);
  x ^= x >>> 15;
  x = Math.imul(x, 2246822507);
  return (x ^ (x >>> 13)) >>> 0;
}

// fillOf is the index of a name's colour; -1 where there is no name.
export function fillOf(name: string): number {
  if (name.startsWith('[') || name.startsWith('0x') || /\+0x[0-9a-f]+$/.test(name)) return -1;
  return hash(name) % fills;
}

export function reducedMotion(): boolean {
  return matchMedia('(prefers-reduced-motion: reduce)').matches;
}
