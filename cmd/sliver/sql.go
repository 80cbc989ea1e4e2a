package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/sliverprof/sliver/query"
)

// maxQuestion limits the length of a question, in bytes.
const maxQuestion = 1 << 20

func sqlCommand() *command {
	var (
		format string
		part   choice
		names  nameFlags
		most   time.Duration
	)
	return &command{
		name: "sql", files: true, args: `IN.sliver ["select …"]`, short: "ask a recording questions in SQL",
		flags: func(fs *pflag.FlagSet) {
			fs.StringVar(&format, "format", "table", "format of the answer: "+strings.Join(query.Formats(), ", "))
			fs.DurationVar(&most, "timeout", time.Minute, "time limit of the query (0: none)")
			part.register(fs)
			names.register(fs, ",\nwhere the recording has none yet")
		},
		help: `
The question comes from standard input where it is not given. SQLite's dialect.
Tables (times in ns, ts counts from the beginning):
` + tableHelp() + `
Examples:
  sliver sql run.sliver "select function, self_cpu/1e6 ms, total_cpu/1e6 total
      from profile order by self_cpu desc limit 10"
  sliver sql run.sliver "select kind, file, symbol, count, dur/1e6 ms from hot_waits limit 10"
  sliver sql run.sliver "select name, running/1e6 ran, runnable/1e6 waited, blocked/1e6 slept
      from thread_states order by 2 desc" --format csv
  sliver sql run.sliver "select t.name, state, sum(dur)/1e6 ms
      from states join threads t on t.id = thread group by 1, 2"
  sliver sql run.sliver "select * from recording"`,
		run: func(ctx context.Context, e *env, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return usagef("sql", "give a recording and a question in quotes")
			}
			if !slices.Contains(query.Formats(), format) {
				return usagef("sql", "unknown format %q; there are: %s", format, strings.Join(query.Formats(), ", "))
			}
			if most < 0 {
				return usagef("sql", "timeout: %v is negative", most)
			}
			if err := part.parse("sql"); err != nil {
				return err
			}
			var question string
			if len(args) == 2 {
				question = args[1]
			} else {
				b, err := io.ReadAll(io.LimitReader(e.stdin, maxQuestion))
				if err != nil {
					return fmt.Errorf("read the question: %w", err)
				}
				question = string(b)
			}
			if strings.TrimSpace(question) == "" {
				return usagef("sql", "the question is empty")
			}
			if !query.One(question) {
				return usagef("sql", "ask one question at a time: another statement follows the first")
			}
			rec, opts, file, err := openPart(e, "sql", args[0], &names, &part)
			if err != nil {
				return err
			}
			defer file.Close()
			ctx, stop := (&ender{stderr: e.stderr}).context(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			db, err := query.Open(ctx, rec, opts, question)
			if err != nil {
				return endedSQL(ctx, err, most)
			}
			defer db.Close()
			if most > 0 {
				var done func()
				ctx, done = context.WithTimeout(ctx, most)
				defer done()
			}
			rows, err := db.Rows(ctx, question)
			if err != nil {
				if err := endedSQL(ctx, nil, most); err != nil {
					return err
				}
				return usagef("sql", "%s; tables: %s", plainSQL.ReplaceAllString(err.Error(), ""), tableNames())
			}
			_, err = query.Write(e.stdout, rows, format)
			return endedSQL(ctx, err, most)
		},
	}
}

// endedSQL returns why an answer ended early: err, unless ctx ended.
func endedSQL(ctx context.Context, err error, most time.Duration) error {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("the answer took longer than %v; --timeout gives it more", most)
	case ctx.Err() != nil:
		return errors.New("ended by a signal")
	case err != nil:
		return errors.New(plainSQL.ReplaceAllString(err.Error(), ""))
	}
	return nil
}

// plainSQL matches what SQLite adds to its messages.
var plainSQL = regexp.MustCompile(`^SQL logic error: | \(\d+\)$`)

func tableNames() string {
	var names []string
	for _, t := range query.Tables() {
		names = append(names, t.Name)
	}
	for _, v := range query.Views() {
		names = append(names, v.Name)
	}
	return strings.Join(names, ", ")
}

func tableHelp() string {
	var b strings.Builder
	for _, t := range query.Tables() {
		var cols []string
		for _, c := range t.Columns {
			cols = append(cols, c.Name)
		}
		b.WriteString(tableLine(t.Name, cols))
	}
	for _, v := range query.Views() {
		var cols []string
		for _, c := range v.Columns {
			cols = append(cols, c.Name)
		}
		b.WriteString(tableLine(v.Name, cols))
	}
	return b.String()
}

// tableLine lists a table's columns on lines of the help's width.
func tableLine(name string, columns []string) string {
	return "  " + wrap(name+" ("+strings.Join(columns, ", ")+")", helpWidth-4, "    ") + "\n"
}
