// Whose code a function is: the program's own, or a library's or runtime's.

import table from './kinds.json';
import type { Link } from './proto';

// Place describes a function.
export interface Place {
  name: string;
  file?: string;
  module?: string;
  kind?: string;
}
type Told = (f: Place) => boolean;

// Kind is a kind of code, as package stack describes it: TestPageKinds writes kinds.json.
export interface Kind {
  kind: string;
  title: string;
  managed?: boolean; // a virtual machine runs it
  launched?: boolean; // the first thread of a program only starts another one
  names?: string; // of functions that came with the runtime or were installed
  files?: string; // their source files
  unfiled?: boolean; // they may have none
}
export const kinds: Kind[] = table;
const byName = new Map(kinds.map((k) => [k.kind, k]));

// never matches nothing.
const never = /(?!)/;
const pattern = (s?: string): RegExp => (s ? new RegExp(s) : never);
const libraries = new Map(kinds.map((k) => [k.kind, { names: pattern(k.names), files: pattern(k.files), unfiled: !!k.unfiled }]));

// library reports functions of a language that came with its runtime or were installed.
const library: Told = (f) => {
  const l = libraries.get(f.kind ?? '');
  return !!l && (l.names.test(f.name) || (f.file ? l.files.test(f.file) : l.unfiled));
};

// managed reports functions of a language that a virtual machine runs.
export const managed: Told = (f) => !!byName.get(f.kind ?? '')?.managed;

// launched reports whether a program with these kinds of code may have a first thread that only waits for another.
export const launched = (kinds: Set<string>): boolean => [...kinds].some((k) => byName.get(k)?.launched);

// interpreted reports whether a program has code that a virtual machine runs.
export const interpreted = (kinds: Set<string>): boolean => [...kinds].some((k) => byName.get(k)?.managed);

// sifted reports whether calls are left out of the tracks of a program with these kinds of code.
export function sifted(l: Link, kinds: Set<string>): boolean {
  return l.kinds !== '' || (l.sifts && !l.runtime && interpreted(kinds));
}

// goLibrary reports functions of Go's standard library, by their file: GOROOT/src/PACKAGE/FILE.
function goLibrary(f: Place): boolean {
  const pkg = /^((?:[\w.-]+\/)*[\w-]+)\./.exec(f.name)?.[1] ?? '';
  if (!pkg || pkg === 'main') return false;
  if (/^(runtime|syscall|sync|internal)($|\/)/.test(pkg)) return true;
  return !pkg.includes('.') && !!f.file && (f.file.includes(`/src/${pkg}/`) || f.file.startsWith(`${pkg}/`));
}

// ownCode reports whether a function is the program's own: of a program in Java, Python, JavaScript or
// Ruby its functions outside of libraries, else those of its executable outside of Go's library.
// Of several processes it is own code of each.
export function ownCode(kinds: Set<string>, exes: Set<string>): (f: Place) => boolean {
  if (interpreted(kinds)) return (f) => managed(f) && !library(f);
  // _start is the C library's, linked in.
  return (f) => !!f.module && exes.has(f.module) && f.name !== '_start' && !(f.kind === 'go' && goLibrary(f));
}
