// An HTTP server with a fast and a slow handler, and a client of its own that asks for both in turn.
// Prints "serving"; ends with its standard input.
'use strict';
const http = require('node:http');

function renderReport(n) {
  let sum = 0;
  for (let i = 0; i < n; i++) sum = (sum * 31 + i) % 1000003;
  return sum;
}

function slowReportHandler(res) {
  res.end(String(renderReport(2e6)));
}

function healthHandler(res) {
  res.end('ok');
}

const server = http.createServer((req, res) => (req.url === '/report' ? slowReportHandler(res) : healthHandler(res)));
server.listen(0, '127.0.0.1', () => {
  const { port } = server.address();
  let turn = 0;
  const ask = () => http.get({ port, host: '127.0.0.1', path: turn++ % 4 ? '/health' : '/report' }, (r) => r.resume().on('end', () => setTimeout(ask, 3)));
  for (let i = 0; i < 4; i++) ask();
  console.log('serving');
});
process.stdin.resume().on('end', () => process.exit(0)).on('close', () => process.exit(0));
