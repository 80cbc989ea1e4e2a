// The websocket is opened before the rest of the page runs; messages that arrive early
// wait here for take.

let early: WebSocket | null = null;
let came: MessageEvent[] = [];

export function socket(token: string): WebSocket {
  const ws = new WebSocket(`${location.protocol === 'https:' ? 'wss' : 'ws'}://${location.host}/ws`, [
    'sliver.v1',
    `sliver.v1.token.${token}`,
  ]);
  ws.binaryType = 'arraybuffer';
  return ws;
}

// meet opens a websocket, if the address has a token.
export function meet(): void {
  const token = new URLSearchParams(location.hash.slice(1)).get('token');
  if (!token) return;
  early = socket(token);
  early.onmessage = (e) => came.push(e);
}

// take returns the websocket that meet opened, with the messages so far; null
// where there is none, or it has ended.
export function take(): { ws: WebSocket; came: MessageEvent[] } | null {
  const ws = early;
  const had = came;
  early = null;
  came = [];
  return ws && ws.readyState <= WebSocket.OPEN ? { ws, came: had } : null;
}
