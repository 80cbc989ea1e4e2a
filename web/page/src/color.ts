// Colors. A function keeps its color from visit to visit: it comes from a hash of its name.
// Any two of the sixteen function colors are more than 13 apart in CIE L*a*b*, also for readers without
// red, green or blue cones (matrices of Machado, Oliveira and Fernandes, 2009), and the first six, which
// kinds of code have, more than 18. Text on every color has a contrast above 4.5. The light and dark
// lists are in the order in which they are most alike. Tests of the page check all of it.

import type { Part } from './analysis';

export const fills = 16; // colors that functions have when colors show functions or modules

// When colors show the state, the program's own code has a hue by module in two shades by name, and
// libraries and runtimes are grey. Numbers of these colors follow those of the functions.
export const ownFills = 4; // hues
export const ownFirst = fills;
export const greyFirst = fills + 2 * ownFills;

export interface Theme {
  dark: boolean;
  bg: string;
  panel: string;
  line: string;
  faint: string;
  text: string;
  soft: string;
  onFill: string;
  onState: string; // text when colors show the state
  parts: Record<Part, string>; // colors of states
  veils: Record<Part, string>; // drawn over calls that wait
  fills: string[];
  dim: string;
  dimText: string;
  unknown: string;
  accent: string;
  found: string; // calls that a search found, when colors show the state
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
  '#f3668e',
  '#9cf4d4',
  '#b686ba',
  '#7191f8',
  '#f8d466',
  '#bdf19f',
  '#eea9f4',
  '#969b45',
  '#3ea695',
  '#beac3b',
  '#fad8fb',
  '#67d2c6',
  '#f8b273',
  '#a488d8',
  '#f68f7c',
  '#cad0a6',
];
const lightOwn = ['#57c08a', '#86d6ab', '#6aa9ec', '#98c5f4', '#f0a35c', '#f7c592', '#b49aea', '#cfbdf3', '#c3cad1', '#d2d8de'];
const darkOwn = ['#1b7048', '#247f55', '#25609f', '#2f6cad', '#8a5312', '#965e1d', '#6547a8', '#7153b5', '#3f4a55', '#4a5662'];

const darkFills = [
  '#ee617e',
  '#6dd8cc',
  '#9c68b1',
  '#529fed',
  '#a57209',
  '#b5d17a',
  '#c86598',
  '#778145',
  '#458963',
  '#a49e48',
  '#a9a1c8',
  '#9bbcf9',
  '#f0c057',
  '#5277db',
  '#ed99ab',
  '#d6c59e',
];

export const light: Theme = {
  dark: false,
  bg: '#ffffff',
  panel: '#f5f7f9',
  line: '#d8dee4',
  faint: '#eef1f4',
  text: '#17202a',
  soft: '#56636f',
  onFill: '#10171d',
  onState: '#10171d',
  parts: {
    cpu: '#216d44',
    runnable: '#916a18',
    lock: '#821867',
    io: '#1748d3',
    sleep: '#92aad0',
    other: '#847b89',
    stopped: '#352924',
    idle: '#d5e2ef',
  },
  veils: {
    cpu: '#ffffff',
    runnable: '#f6e2b3',
    lock: '#f3d0e4',
    io: '#cfe2f6',
    sleep: '#e3e9ef',
    other: '#e0e3e6',
    stopped: '#ccd2d8',
    idle: '#f3f5f7',
  },
  fills: [...lightFills, ...lightOwn],
  dim: '#e6eaed',
  dimText: '#5b6771',
  unknown: '#d3d9de',
  accent: '#0b62a4',
  found: '#ffd34d',
  hit: '#b3125f',
  state: { 1: '#2f9e6e', 2: '#e0a21b', 3: '#b9c6d2', 4: '#b5532a', 5: '#9b4fa0', 6: '#6b7680', 7: '#6b7680' },
  lock: '#c2410c',
  park: '#e5c3b3',
  gap: '#8b95a0',
  pause: '#a21caf',
  load: '#5a9fd0',
  more: '#d9822b',
  less: '#3b86c4',
};

export const dark: Theme = {
  dark: true,
  bg: '#12171c',
  panel: '#1a2128',
  line: '#303a44',
  faint: '#1e262e',
  text: '#e6ebf0',
  soft: '#9fadb9',
  onFill: '#080b0e',
  onState: '#f4f8fb',
  parts: {
    cpu: '#49cb8f',
    runnable: '#d29338',
    lock: '#f21d53',
    io: '#648fe9',
    sleep: '#5e6b84',
    other: '#a39ebe',
    stopped: '#ece1de',
    idle: '#343a40',
  },
  veils: {
    cpu: '#000000',
    runnable: '#4a3a12',
    lock: '#4d2440',
    io: '#1d3955',
    sleep: '#28323c',
    other: '#2e353c',
    stopped: '#3a434b',
    idle: '#171d23',
  },
  fills: [...darkFills, ...darkOwn],
  dim: '#2a333c',
  dimText: '#a3b0bb',
  unknown: '#6d7883',
  accent: '#6cb8f0',
  found: '#86670a',
  hit: '#ff7ac0',
  state: { 1: '#35b27c', 2: '#e5ae35', 3: '#46535f', 4: '#d9703f', 5: '#b56cba', 6: '#7c8893', 7: '#7c8893' },
  lock: '#fb923c',
  park: '#5b4636',
  gap: '#76828d',
  pause: '#d65fe0',
  load: '#4c93c6',
  more: '#e0903d',
  less: '#5ba3de',
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

// fillOf is the index of a name's color; -1: it is an address or a bracketed word.
export function fillOf(name: string): number {
  if (name.startsWith('[') || name.startsWith('0x') || /\+0x[0-9a-f]+$/.test(name)) return -1;
  return hash(name) % fills;
}

export function reducedMotion(): boolean {
  return matchMedia('(prefers-reduced-motion: reduce)').matches;
}

// inks are the colors of text on spans.
const inks = new Map<string, string>();

// inkOn is black or white, whichever has more contrast on a color (WCAG 2.2, relative luminance).
export function inkOn(color: string): string {
  let ink = inks.get(color);
  if (!ink) {
    const [r, g, b] = [1, 3, 5]
      .map((i) => parseInt(color.slice(i, i + 2), 16) / 255)
      .map((x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4)) as [number, number, number];
    ink = 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? '#000000' : '#ffffff';
    inks.set(color, ink);
  }
  return ink;
}
