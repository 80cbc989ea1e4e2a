// serve.js SOCKET: an HTTP server on a Unix socket that encodes a small object for each request. Ends
// with its standard input.
'use strict';
const http = require('node:http');

const names = Array.from({ length: 24 }, (_, i) => 'item-' + ((i * 7919) % 97));

function render(n) {
	return JSON.stringify({ n, items: names.slice().sort().map((name, at) => ({ at, name })) });
}

let n = 0;
http.createServer((req, res) => res.end(render(n++ % 10))).listen(process.argv[2]);
process.stdin.resume().on('end', () => process.exit(0));
