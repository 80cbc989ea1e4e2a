// Whose code a function is: the program's own, or a library's or runtime's.

import type { Link } from './proto';

// Place describes a function.
export interface Place {
  name: string;
  file?: string;
  module?: string;
  kind?: string;
}
type Told = (f: Place) => boolean;

// library reports functions of a language that came with its runtime or were installed.
const library: Told = (f) =>
  f.kind === 'java'
    ? /^(java|javax|jdk|sun|com\.sun)\./.test(f.name)
    : f.kind === 'python'
      ? !f.file || /\/lib\/python\d|^<frozen /.test(f.file)
      : f.kind === 'ruby'
        ? !f.file || /^<internal:|\/lib\/(x86_64-linux-gnu\/|aarch64-linux-gnu\/)?ruby\/|\/gems\/|\/rubygems/.test(f.file)
        : /^node:|\/node_modules\//.test(f.file ?? 'node:');

// managed reports functions of a language that a virtual machine runs.
export const managed: Told = (f) => machines.includes(f.kind ?? '');

// machines are the kinds of code that virtual machines run.
const machines = ['java', 'python', 'js', 'ruby'];

// interpreted reports whether a program has code that a virtual machine runs.
export const interpreted = (kinds: Set<string>): boolean => machines.some((k) => kinds.has(k));

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
