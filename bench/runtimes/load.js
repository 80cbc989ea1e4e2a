// Work of ten kinds, each in a function of its own, over and over. Its argument is a
// file into which it writes how many rounds it has made, as 8 bytes.
'use strict';
const fs = require('fs');

function down(n) { return n === 0 ? 0 : down(n - 1) + 1; }
function recursion() { let s = 0; for (let i = 0; i < 40; i++) s += down(120); return s; }
function* numbers(n) { for (let i = 0; i < n; i++) yield i * i; }
function generators() { let s = 0; for (const x of numbers(4000)) s += x; return s; }
function encoding(data) { return JSON.stringify(data); }
function decoding(text) { return JSON.parse(text); }
function matching(text) { return text.match(/(\w+)@(\w+)/g).length; }
function sorting(items) { return items.slice().sort((a, b) => b - a); }
function joining(items) { return items.map((x) => String(x)).join(','); }
function counting(text) {
	const n = new Map();
	for (const c of text) n.set(c, (n.get(c) || 0) + 1);
	return n;
}
class Point {
	constructor(x, y) { this.x = x; this.y = y; }
	dot(o) { return this.x * o.x + this.y * o.y; }
}
function objects() {
	let s = 0, last = new Point(0, 1);
	for (let i = 1; i < 3000; i++) { const p = new Point(i, i + 1); s += p.dot(last); last = p; }
	return s;
}
function summing() { let n = 0; for (let i = 0; i < 30000; i++) n += i % 7; return n; }

const data = Object.fromEntries(Array.from({ length: 100 }, (_, i) => ['k' + i, [i, String(i), null, 1.5]]));
const text = 'name@host some words '.repeat(60);
const items = Array.from({ length: 800 }, (_, i) => (i * 7919) % 801);
const out = fs.openSync(process.argv[2], 'w+');
const b = Buffer.alloc(8);
function once() {
	recursion(); generators(); decoding(encoding(data)); matching(text); sorting(items);
	joining(items); counting(text); objects(); summing();
}
for (let n = 1n; ; n++) {
	once();
	b.writeBigUInt64LE(n);
	fs.writeSync(out, b, 0, 8, 0);
}
