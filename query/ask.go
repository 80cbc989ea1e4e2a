// Package query answers SQL questions about a recording. It loads the recording into a
// temporary SQLite database, an unnamed file, so memory does not grow with the recording.
// Only the tables that the question names are filled. Tables lists them; docs/sql.md
// documents them.
//
// A DB is for one goroutine; several may share a Recording.
package query

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"

	_ "modernc.org/sqlite" // the database

	"github.com/sliverprof/sliver/export/between"
	"github.com/sliverprof/sliver/export/view"
	"github.com/sliverprof/sliver/stack"
	"github.com/sliverprof/sliver/trace"
)

// kindNames returns the kinds of code that calls of a recording may have.
func kindNames() []string {
	var all []string
	for _, k := range stack.Kinds() {
		all = append(all, k.String())
	}
	return all
}

// Table is a table that a question can name.
type Table struct {
	Name    string
	About   string
	Columns []Column
}

// Column is one column of a table.
type Column struct {
	Name, Type string
	About      string
}

// Tables returns all tables. Times are in ns: ts counts from the start of the recording,
// dur is a duration. Threads are identified by threads.id.
func Tables() []Table {
	thread := Column{"thread", "INTEGER", "threads.id"}
	ts := Column{"ts", "INTEGER", "ns since the recording began"}
	dur := Column{"dur", "INTEGER", "ns"}
	found := Column{"samples", "INTEGER", "that found it; 1: it may have been much shorter; 0: the scheduler's account alone shows it; NULL: the kernel's context switches do"}
	process := Column{"process", "INTEGER", "processes.id"}
	return append([]Table{
		{"recording", "facts about the recording", []Column{
			{"name", "TEXT", "such as command, host, interval, late"}, {"value", "TEXT", ""}}},
		{"processes", "the recorded processes", []Column{
			{"id", "INTEGER PRIMARY KEY", "number in this recording"}, {"pid", "INTEGER", ""}, {"ppid", "INTEGER", "process that started it; NULL if unknown"},
			{"name", "TEXT", "its program"}, {"command", "TEXT", "with its arguments"}, {"began", "INTEGER", "ns since the recording began; below 0 if before it"},
			{"ended", "INTEGER", "when its part of the recording ended; NULL if that is not in the file"}, {"threads", "INTEGER", ""},
			{"samples", "INTEGER", ""}, {"cpu", "INTEGER", "ns on a CPU while it was observed, with those after its last sample if it began in the recording"},
			{"exit_status", "INTEGER", "NULL if a signal killed it, it did not end, or how is not known"},
			{"exit_signal", "TEXT", "the signal that killed it, such as SIGKILL"}}},
		{"threads", "the threads of each process, main first, then by age", []Column{
			{"id", "INTEGER PRIMARY KEY", "number in this recording"}, {"tid", "INTEGER", "as /proc has it"},
			{"name", "TEXT", ""}, {"main", "INTEGER", "1 for the main thread"},
			{"began", "INTEGER", "ns since the recording began; below 0 if before it"},
			{"since", "INTEGER", "when it was taken up"}, {"samples", "INTEGER", ""}, {"stops", "INTEGER", "samples for which it was stopped"},
			{"late", "INTEGER", "ticks left out"}, {"truncated", "INTEGER", "samples with an incomplete stack"},
			{"overwritten", "INTEGER", "events lost"}, {"cpu", "INTEGER", "ns on a CPU while it was observed"},
			{"paused", "INTEGER", "ns that sliver held it"}, process}},
		{"thread_names", "the names that threads had over time; threads.name is the newest", []Column{
			thread, {"name", "TEXT", ""}, ts, dur}},
		{"functions", "functions that were seen", []Column{
			{"id", "INTEGER PRIMARY KEY", ""}, {"name", "TEXT", "demangled"}, {"linkage", "TEXT", "as in the symbol table, where that differs"},
			{"file", "TEXT", "source file"}, {"line", "INTEGER", "of its beginning"}, {"module", "TEXT", "file that it is in"},
			{"build_id", "TEXT", "of the module"}, {"address", "INTEGER", "of its beginning, in the module"}, process}},
		{"slices", "calls: what a timeline shows as bars", []Column{
			{"id", "INTEGER PRIMARY KEY", ""}, {"parent", "INTEGER", "slices.id of the caller; NULL for the outermost"}, thread,
			{"depth", "INTEGER", "0 is outermost"}, {"function", "INTEGER", "functions.id"}, ts, dur,
			{"self", "INTEGER", "ns without the calls that it made"}, {"line", "INTEGER", "where in the function it was last"}, {"inlined", "INTEGER", "1 for an inlined call"},
			{"kind", "TEXT", "what runs it: " + strings.Join(kindNames(), ", ") + "; error: frames are missing there"},
			{"exact", "TEXT", "of a traced call, whose times are exact: how it ended, as in calls; NULL: it is sampled"}}},
		{"profile", "time of each function, over all chosen threads of a process; recursion counts once", []Column{
			{"function", "TEXT", "its name"}, {"file", "TEXT", "source file"}, {"line", "INTEGER", "of its beginning"},
			{"self_cpu", "INTEGER", "ns of CPU time in itself"}, {"total_cpu", "INTEGER", "ns of CPU time in itself and what it called"},
			{"self_wall", "INTEGER", "ns that it was on top of a stack"}, {"total_wall", "INTEGER", "ns that it was on a stack"},
			{"samples", "INTEGER", "samples that found it on a stack"}, process}},
		{"thread_states", "how threads spent their time, by the scheduler's account; the states add up to observed", []Column{
			thread, {"name", "TEXT", "of the thread"}, {"observed", "INTEGER", "ns"}, {"running", "INTEGER", "ns on a CPU"},
			{"runnable", "INTEGER", "ns waiting for a CPU"}, {"blocked", "INTEGER", "ns asleep"}, {"uninterruptible", "INTEGER", "ns in uninterruptible sleep"},
			{"fault", "INTEGER", "ns waiting for memory"}, {"stopped", "INTEGER", "ns stopped by a signal, or traced"},
			{"locks", "INTEGER", "of blocked, ns for locks"}, {"switches", "INTEGER", "times that it got a CPU"}}},
		{"samples", "looks at a thread that confirmed a stack; equal ones are one row", []Column{
			thread, ts, {"count", "INTEGER", "samples since the row before"}, {"how", "TEXT", "stop, unrun, read, part, clock"},
			{"cpu", "INTEGER", "ns that the thread ran since the row before"}, {"slice", "INTEGER", "slices.id of the innermost call"},
			{"state", "TEXT", ""}}},
		{"states", "what threads did, with changes of state where the scheduler's account puts them", []Column{
			thread, ts, dur, {"state", "TEXT", "running, runnable, blocked, uninterruptible, …"},
			{"call", "TEXT", "system call that it was in"}, {"slice", "INTEGER", "slices.id of the innermost call at its beginning"},
			{"exact", "INTEGER", "1: the kernel's context switches show it (`sliver record --kernel=auto`)"},
			{"waker", "INTEGER", "TID of the thread of the process that ended the wait, by the kernel; NULL if it was another or is unknown"},
			{"woken_by", "TEXT", "what ended the wait, by the kernel: a thread, also of another process, a timer or interrupt"},
			{"waker_process", "INTEGER", "processes.id of the process of that thread; NULL if it is not in the recording"},
			{"kernel_stack", "TEXT", "the kernel's functions in a wait of 1 ms or more, outermost first, separated by `;`"}}},
		{"waits", "what blocked threads waited for, as far as that was found out", []Column{
			thread, ts, dur, {"call", "TEXT", "system call"}, {"kind", "TEXT", ""}, {"args", "TEXT", "of the call"}, {"file", "TEXT", "file, socket or pipe"},
			{"files", "TEXT", "the same, but of eight or more files with alike names their pattern: /tmp/tmp*"}, {"lock", "INTEGER", "address of the lock"}, {"symbol", "TEXT", "name of the lock"}, {"timeout", "INTEGER", "ns"},
			{"slice", "INTEGER", "slices.id of the innermost call"}, {"idle", "INTEGER", "1: the thread had nothing to do, as in a pool or an event loop"},
			{"woken_by", "TEXT", "what ended the wait, by the kernel, as in states, or a process of the recording"},
			{"waits_for", "TEXT", "the other processes of the recording that it was for"},
			{"waker_process", "INTEGER", "processes.id of the other process that ended it; NULL if there is none or it has no samples"},
			{"waker", "INTEGER", "TID of the thread of that process that did; NULL if unknown"},
			{"waker_by", "TEXT", "how that is known: " + strings.Join(between.Ways(), ", ")}, found}},
		{"locks", "waits for locks, with who held them", []Column{
			thread, ts, dur, {"lock", "INTEGER", "address"}, {"symbol", "TEXT", ""}, {"holder", "INTEGER", "TID of the thread that held it; NULL if unknown"},
			{"known_by", "TEXT", "word, kernel, runtime, inferred, waker (the kernel saw it wake the thread)"}, {"slice", "INTEGER", "slices.id of the innermost call"}, found}},
		{"gaps", "times without samples; the timeline shows the last sample there", []Column{
			thread, ts, dur, {"why", "TEXT", "late, stop timed out, overhead budget, overwritten, …"}}},
		{"calls", "calls of functions chosen by --trace: all of them, with exact times", []Column{
			{"tid", "INTEGER", "of the thread"}, {"thread", "INTEGER", "threads.id; NULL if the thread was not sampled"},
			{"function", "TEXT", "its name"}, {"module", "TEXT", "file that it is in"}, ts, dur,
			{"how", "TEXT", "how it ended: returned, tail call, left (exception, longjmp, panic: dur is a bound), open; ended (Java: a return or an exception)"},
			{"before", "INTEGER", "1: it began before tracing did, at an unknown time"},
			{"unsure", "INTEGER", "1: entries or exits were lost while it was open, or its entry was hit twice"},
			{"on_cpu", "INTEGER", "ns on a CPU; this and the next two add up to `dur`, and are NULL where the states of its thread are not known"},
			{"runnable", "INTEGER", "ns waiting for a CPU"}, {"off_cpu", "INTEGER", "ns in waits"},
			{"times_exact", "INTEGER", "1: these are by the kernel's context switches (`--kernel=auto`); 0: estimated from the samples; NULL of calls shorter than two of their intervals"},
			{"woken_by", "TEXT", "what ended its longest wait, as in states"},
			{"caller", "TEXT", "function that called it"}, {"task", "INTEGER", "goroutine, by the address of its descriptor, or virtual thread, by its number"}, process}},
		{"tasks", "goroutines that were seen", []Column{
			{"id", "INTEGER", "the runtime's number, in its process"}, {"parent", "INTEGER", "tasks.id of who started it; NULL if unknown"},
			{"name", "TEXT", "its first function"}, {"ran", "INTEGER", "ns on threads"}, process}},
		{"task_spans", "where goroutines were and what they did", []Column{
			{"task", "INTEGER", "tasks.id"}, ts, dur, {"thread", "INTEGER", "threads.id; NULL while no thread had it"},
			{"state", "TEXT", "running, runnable, syscall, waiting, …"}, {"reason", "TEXT", "what it waited for, in the runtime's words; `system call`: its thread was blocked in one"}, process}},
	}, ioTables(ts, dur, process)...)
}

// View is a named query that can be used like a table.
type View struct {
	Table
	of    []string // tables that it reads
	query string
}

// Views returns all views.
func Views() []View {
	times := []Column{{"count", "INTEGER", "how many"}, {"dur", "INTEGER", "ns in all"}, {"longest", "INTEGER", "ns, of waits that a sample found"}, {"threads", "INTEGER", "threads that waited"}}
	return []View{
		{Table{"hot_waits", "what threads waited for without idle waits (waits.idle), longest in all first", append([]Column{
			{"kind", "TEXT", ""}, {"call", "TEXT", "system call"}, {"file", "TEXT", "waits.files"}, {"symbol", "TEXT", "name of the lock"}}, times...)},
			[]string{"waits"}, `SELECT kind, call, files AS file, symbol, count(*) AS count, sum(dur) AS dur, coalesce(max(CASE WHEN samples IS NOT 0 THEN dur END), 0) AS longest,
				count(DISTINCT thread) AS threads FROM waits WHERE NOT idle GROUP BY 1, 2, 3, 4 ORDER BY dur DESC`},
		{Table{"hot_locks", "locks that threads waited for, longest in all first", append([]Column{
			{"lock", "INTEGER", "address"}, {"symbol", "TEXT", ""}, {"holder", "INTEGER", "TID of the thread that held it; NULL if unknown"}}, times...)},
			[]string{"locks"}, `SELECT lock, max(symbol) AS symbol, holder, count(*) AS count, sum(dur) AS dur, coalesce(max(CASE WHEN samples IS NOT 0 THEN dur END), 0) AS longest,
				count(DISTINCT thread) AS threads FROM locks GROUP BY lock, holder ORDER BY dur DESC`},
	}
}

func (v *View) create() string { return "CREATE VIEW " + v.Name + " AS " + v.query }

func (t *Table) create() string {
	var cols []string
	for _, c := range t.Columns {
		cols = append(cols, c.Name+" "+c.Type)
	}
	return "CREATE TABLE " + t.Name + " (" + strings.Join(cols, ", ") + ")"
}

// DB is a recording loaded into a database.
type DB struct {
	db   *sql.DB
	conn *sql.Conn
}

// Open loads the part of rec that o selects and that question needs. The caller must call
// Close.
func Open(ctx context.Context, rec *trace.Recording, o view.Options, question string) (*DB, error) {
	if err := countMemory(); err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", "")
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	db.SetMaxOpenConns(1) // every connection would open its own database
	d := &DB{db: db}
	if err := d.fill(ctx, rec, o, question); err != nil {
		d.Close()
		return nil, fmt.Errorf("fill database: %w", err)
	}
	return d, nil
}

// Close deletes the database.
func (d *DB) Close() error {
	var err error
	if d.conn != nil {
		err = d.conn.Close()
	}
	return errors.Join(err, d.db.Close())
}

var word = regexp.MustCompile(`\w+`)

func (d *DB) fill(ctx context.Context, rec *trace.Recording, o view.Options, question string) (err error) {
	if d.conn, err = d.db.Conn(ctx); err != nil {
		return err
	}
	asked := map[string]bool{}
	for _, w := range word.FindAllString(question, -1) {
		asked[strings.ToLower(w)] = true
	}
	for _, v := range Views() {
		for _, t := range v.of {
			asked[t] = asked[t] || asked[v.Name]
		}
	}
	for _, q := range []string{"PRAGMA journal_mode=off", "PRAGMA synchronous=off", "PRAGMA temp_store=file", "PRAGMA cache_size=-32768", "BEGIN"} {
		if _, err := d.conn.ExecContext(ctx, q); err != nil {
			return err
		}
	}
	f := &filler{ctx: ctx, rec: rec, views: view.All(rec, o), put: map[string]*sql.Stmt{}}
	defer f.close()
	for _, t := range Tables() {
		if _, err := d.conn.ExecContext(ctx, t.create()); err != nil {
			return err
		}
		if !asked[t.Name] {
			continue
		}
		marks := strings.Repeat(", ?", len(t.Columns))[2:]
		if f.put[t.Name], err = d.conn.PrepareContext(ctx, "INSERT INTO "+t.Name+" VALUES ("+marks+")"); err != nil {
			return err
		}
	}
	if err := f.all(); err != nil {
		return err
	}
	for _, v := range Views() {
		if _, err := d.conn.ExecContext(ctx, v.create()); err != nil {
			return err
		}
	}
	// The question must not change the database or other files.
	for _, q := range []string{"COMMIT", "PRAGMA query_only=on"} {
		if _, err := d.conn.ExecContext(ctx, q); err != nil {
			return err
		}
	}
	return d.closeDoors(ctx)
}

// Rows runs the question. It stops when ctx is done.
func (d *DB) Rows(ctx context.Context, question string) (*sql.Rows, error) {
	return d.conn.QueryContext(ctx, question)
}
