package policy

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// phrases are constructions that readers take for a translation. CONTRIBUTING.md says what to write
// instead.
var phrases = regexp.MustCompile(strings.Join([]string{
	`\btells?\b|\btold\b`,
	`\b(is|are|was|were|be|been) had\b`,
	`\b[Ww]ho(ever)? (wants?|asks?|has|is|reads?|holds?|gives?|waits?|takes?|knows?|comes?|uses?|calls?)\b`,
	`\b[Ww]hat (is|was|are|were|has|lies|stands|comes|cannot|can)\b`,
	`\b(stands?|stood|lies|lay)\b`,
	`\b(or else|would else|meanwhile|of late|besides|anew|for want of|in place of)\b`,
	`\b[Ss]o (long|many|often|much)\b`,
	`\b(is|are|was|were) to be\b`,
	`\bthat (is|are|was|were) there\b`,
	`\b([Nn]obody|[Ss]omebody|[Aa]nybody)\b`,
	`\b(is|are|was) no [a-z]+\b`,
}, "|"))

// usual is what the field itself says, and phrases matches.
var usual = regexp.MustCompile(`\b(is|are|was) no (longer|more)\b`)

var comment = regexp.MustCompile(`(^|\s)//\s?(.*)$`)

// mostPhrases is how many lines of comments may have one of the phrases. It may only fall.
var mostPhrases = map[string]int{".go": 0, ".ts": 0}

// TestLanguage counts the lines of comments with such a phrase.
func TestLanguage(t *testing.T) {
	testprog.Unraced(t, "one goroutine reads all files")
	found := map[string][]string{}
	lines := map[string]int{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			switch d.Name() {
			case "testdata", "dist", "node_modules", ".git":
				return filepath.SkipDir
			}
			return nil
		}
		kind := filepath.Ext(path)
		if _, ok := mostPhrases[kind]; !ok {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for n, line := range strings.Split(string(data), "\n") {
			m := comment.FindStringSubmatchIndex(line)
			if m == nil || strings.Count(line[:m[0]], `"`)%2 != 0 || strings.HasPrefix(line[m[4]:], "go:") {
				continue
			}
			lines[kind]++
			if text := usual.ReplaceAllString(line[m[4]:], ""); phrases.MatchString(text) {
				found[kind] = append(found[kind], strings.TrimPrefix(path, "../../")+":"+strconv.Itoa(n+1)+": "+strings.TrimSpace(text))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for kind, most := range mostPhrases {
		if lines[kind] < 100 {
			t.Errorf("%d lines of comments in %s files: the search is broken", lines[kind], kind)
		}
		if n := len(found[kind]); n > most {
			t.Errorf("%d comment lines in %s files have a phrase of CONTRIBUTING.md's list, at most %d may:\n%s", n, kind, most, strings.Join(found[kind], "\n"))
		}
	}
}
