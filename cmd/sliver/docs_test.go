package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/sliverprof/sliver/internal/testprog"
)

// page is a Markdown document.
type page struct {
	name     string // from the project's root
	text     string
	examples []string // commands in code blocks, comments and prompts removed
}

// commandWord is the first word of an example. Other lines of a code block are output or configuration.
var commandWord = regexp.MustCompile(`^(sliver|\./sliver|go|curl|jcmd|adb|sudo|chgrp|chmod|git|python3|setpriv|nanoscope|\./test\.sh|docs/img/live\.sh|bench/\S+|testdata/\S+|[A-Z_]+=\S+) `)

// pages reads the documents that match the patterns.
func pages(t *testing.T, patterns ...string) (all []page) {
	t.Helper()
	root := testprog.Root(t)
	for _, pattern := range patterns {
		names, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %v, %v", pattern, names, err)
		}
		for _, name := range names {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			rel, err := filepath.Rel(root, name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, page{rel, string(b), examples(string(b))})
		}
	}
	return all
}

// examples returns the commands in the code blocks of a document. A command goes on in the next line while a quote
// is open.
func examples(text string) (found []string) {
	fenced, open := false, ""
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
			continue
		}
		code, indented := strings.CutPrefix(line, "    ")
		if !fenced && !indented {
			open = ""
			continue
		}
		if fenced {
			code = line
		}
		switch code = strings.TrimPrefix(code, "$ "); {
		case open != "":
			open += "\n" + code
		case commandWord.MatchString(code + " "):
			open = code
		default:
			continue
		}
		if strings.Count(open, `"`)%2 == 0 && strings.Count(uncomment(open), "'")%2 == 0 {
			found = append(found, uncomment(open))
			open = ""
		}
	}
	return found
}

// comment is what follows a command on its line.
var comment = regexp.MustCompile(`\s+# .*$`)

func uncomment(s string) string { return strings.TrimSpace(comment.ReplaceAllString(s, "")) }

// TestDocsLinks: each link of a document leads to a file, and to a heading of it.
func TestDocsLinks(t *testing.T) {
	root := testprog.Root(t)
	all := pages(t, "*.md", "docs/*.md", "docs/notes/*.md", "web/*.md")
	anchors := map[string][]string{}
	for _, p := range all {
		anchors[p.name] = headings(p.text)
	}
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	found := 0
	for _, p := range all {
		for _, m := range link.FindAllStringSubmatch(p.text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			found++
			file, anchor, _ := strings.Cut(m[1], "#")
			to := p.name
			if file != "" {
				to = filepath.Join(filepath.Dir(p.name), file)
			}
			if _, err := os.Stat(filepath.Join(root, to)); err != nil {
				t.Errorf("%s: %s leads nowhere", p.name, m[1])
			} else if anchor != "" && !slices.Contains(anchors[to], anchor) {
				t.Errorf("%s: %s has no heading %q, only %q", p.name, to, anchor, anchors[to])
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d links found", found)
	}
}

// headings returns the anchors that GitHub gives the headings of a document.
func headings(text string) (all []string) {
	drop := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	fenced := false
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if _, title, ok := strings.Cut(line, "# "); ok && !fenced && strings.HasPrefix(line, "#") {
			all = append(all, strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(title), ""), " ", "-"))
		}
	}
	return all
}

// foreignFlags are flags of other programs that a document names without the program.
var foreignFlags = []string{"--cap-add", "--perf-basic-prof"}

// TestDocsFlags: each flag of a command in README.md and docs is one of that command, and each flag by itself one of any.
func TestDocsFlags(t *testing.T) {
	sets, every := map[string]*pflag.FlagSet{}, []string{}
	for _, c := range commands() {
		fs := c.flagSet(&env{})
		sets[c.name] = fs
		fs.VisitAll(func(f *pflag.Flag) { every = append(every, "--"+f.Name) })
	}
	span := regexp.MustCompile("`([^`\n]+)`")
	flag := regexp.MustCompile(`(?:^|\s)(--[a-z][a-z-]*)`)
	short := regexp.MustCompile(`(?:^|\s)-([a-zA-Z])\b`)
	found := 0
	for _, p := range pages(t, "README.md", "docs/*.md") {
		text := slices.Clone(p.examples)
		for _, m := range span.FindAllStringSubmatch(p.text, -1) {
			text = append(text, m[1])
		}
		for _, s := range text {
			words := strings.Fields(s)
			var fs *pflag.FlagSet
			switch {
			case strings.HasPrefix(s, "-"):
			case len(words) < 2 || words[0] != "sliver":
				continue // another program, or no command at all
			case sets[words[1]] == nil:
				t.Errorf("%s: there is no command %q in %q", p.name, words[1], s)
				continue
			default:
				fs = sets[words[1]]
			}
			own, _, _ := strings.Cut(s, " -- ") // what follows is another program's
			own, _, _ = strings.Cut(own, " | ")
			for _, m := range flag.FindAllStringSubmatch(own, -1) {
				found++
				switch name := m[1]; {
				case fs != nil && fs.Lookup(name[2:]) == nil:
					t.Errorf("%s: %s has no flag %s", p.name, fs.Name(), name)
				case fs == nil && !slices.Contains(every, name) && !slices.Contains(foreignFlags, name):
					t.Errorf("%s: no command has a flag %s (%q)", p.name, name, s)
				}
			}
			if fs == nil {
				continue
			}
			for _, m := range short.FindAllStringSubmatch(quotedPart.ReplaceAllString(own, ""), -1) {
				if found++; fs.ShorthandLookup(m[1]) == nil {
					t.Errorf("%s: %s has no flag -%s (%q)", p.name, fs.Name(), m[1], s)
				}
			}
		}
	}
	if found < 150 {
		t.Errorf("only %d flags found", found)
	}
}

var quotedPart = regexp.MustCompile(`(?s)"[^"]*"|'[^']*'`)

// TestDocsCommands: scripts, programs and tests that a document names exist.
func TestDocsCommands(t *testing.T) {
	root := testprog.Root(t)
	word := regexp.MustCompile(`(?s)^(?:[A-Z_]+=\S+ )*(.*)$`)
	test := regexp.MustCompile(`^go test (.*)`)
	selects := regexp.MustCompile(`-(run|bench) ('[^']*'|\S+)`)
	found := 0
	for _, p := range pages(t, "*.md", "docs/*.md", "docs/notes/*.md", "web/*.md") {
		all := slices.Clone(p.examples)
		for _, m := range regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(p.text, -1) {
			all = append(all, strings.ReplaceAll(m[1], `\|`, "|")) // as a table has it
		}
		for _, s := range all {
			s = word.FindStringSubmatch(s)[1]
			first, rest, _ := strings.Cut(s, " ")
			switch {
			case strings.HasPrefix(first, "bench/") && strings.HasSuffix(first, ".sh") || first == "./test.sh" || strings.HasPrefix(first, "docs/img/") && strings.HasSuffix(first, ".sh"):
				found++
				if _, err := os.Stat(filepath.Join(root, first)); err != nil {
					t.Errorf("%s: there is no %s", p.name, first)
				}
			case first == "go" && strings.HasPrefix(rest, "run ./"):
				found++
				if _, err := os.Stat(filepath.Join(root, strings.Fields(rest)[1])); err != nil {
					t.Errorf("%s: there is no %s", p.name, strings.Fields(rest)[1])
				}
			case test.MatchString(s):
				found++
				patterns := map[string]string{}
				for _, m := range selects.FindAllStringSubmatch(s, -1) {
					if pat := strings.Trim(m[2], "'"); pat != "^$" && pat != "." {
						patterns[m[1]] = pat
					}
				}
				var dirs []string
				for _, dir := range strings.Fields(selects.ReplaceAllString(strings.TrimPrefix(s, "go test"), "")) {
					if strings.HasPrefix(dir, "./") {
						dirs = append(dirs, filepath.Join(root, dir))
					}
				}
				if err := hasTests(dirs, patterns); err != nil {
					t.Errorf("%s: %s: %v", p.name, s, err)
				}
			}
		}
	}
	if found < 80 {
		t.Errorf("only %d commands found", found)
	}
}

// TestDocsFidelity: the tests of docs/fidelity.md exist.
func TestDocsFidelity(t *testing.T) {
	root := testprog.Root(t)
	rows := regexp.MustCompile("`([a-z/]+)` `(Test\\w+)").FindAllStringSubmatch(pages(t, "docs/fidelity.md")[0].text, -1)
	if len(rows) < 20 {
		t.Errorf("only %d tests found", len(rows))
	}
	for _, m := range rows {
		if err := hasTests([]string{filepath.Join(root, m[1])}, map[string]string{"run": m[2]}); err != nil {
			t.Error(err)
		}
	}
}

// hasTests reports a pattern that matches no test or benchmark of the folders, or a folder without tests. The kind of a
// pattern is "run" or "bench".
func hasTests(dirs []string, patterns map[string]string) error {
	var names []string
	decl := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz|Example)\w*)\(`)
	for _, dir := range dirs {
		all := []string{filepath.Join(dir, "*_test.go")}
		if top, ok := strings.CutSuffix(dir, "/..."); ok {
			all = []string{filepath.Join(top, "*_test.go"), filepath.Join(top, "*", "*_test.go")}
		}
		var files []string
		for _, pattern := range all {
			f, err := filepath.Glob(pattern)
			if err != nil {
				return err
			}
			files = append(files, f...)
		}
		if len(files) == 0 {
			return fmt.Errorf("no tests in %s", dir)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				return err
			}
			for _, m := range decl.FindAllStringSubmatch(string(b), -1) {
				names = append(names, m[1])
			}
		}
	}
	for kind, pat := range patterns {
		parts := []string{pat}
		if !strings.Contains(pat, "(") {
			parts = strings.Split(pat, "|") // each alternative has to match
		}
		for _, part := range parts {
			part, _, _ = strings.Cut(part, "/") // subtests are not declared
			re, err := regexp.Compile(part)
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(names, func(n string) bool {
				return strings.HasPrefix(n, "Benchmark") == (kind == "bench") && re.MatchString(n)
			}) {
				return fmt.Errorf("no test matches %q", part)
			}
		}
	}
	return nil
}

// TestDocsLengths: what a stranger reads first stays short.
func TestDocsLengths(t *testing.T) {
	for name, most := range map[string]int{"README.md": 150, "docs/design.md": 250, "docs/performance.md": 200} {
		p := pages(t, name)[0]
		if n := strings.Count(p.text, "\n"); n > most {
			t.Errorf("%s has %d lines; at most %d are allowed", name, n, most)
		}
	}
	_, first, ok := strings.Cut(pages(t, "CHANGELOG.md")[0].text, "## [0.1.0]")
	if n := strings.Count(first, "\n"); !ok || n > 30 {
		t.Errorf("CHANGELOG.md has %d lines on 0.1.0; at most 30 are allowed", n)
	}
}
