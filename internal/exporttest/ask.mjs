// Loads a file in trace_processor and prints the rows of each query, and what
// its stats tell of errors, as JSON.
// Usage: TP_DIR=… node ask.mjs …/perfetto_query.mjs FILE QUERY…
import { pathToFileURL } from 'node:url';
const [, , script, file, ...queries] = process.argv;
const { open, rows } = await import(pathToFileURL(script).href);
const log = console.log;
console.log = console.info = console.debug = () => {};
const e = await open(file);
const out = { Rows: [], Stats: [] };
for (const q of queries) out.Rows.push(await rows(e, q));
out.Stats = await rows(e, `select name, idx, severity, value from stats where value > 0 and (severity in ('error', 'data_loss')
  or name in ('packet_skipped_seq_needs_incremental_state_invalid', 'interned_data_skipped_incremental_state_invalid', 'tokenizer_skipped_packets'))`);
process.stdout.write(JSON.stringify(out), () => process.exit(0));
