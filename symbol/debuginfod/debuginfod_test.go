package debuginfod

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
	"github.com/sliverprof/sliver/symbol"
	"github.com/sliverprof/sliver/symbol/cache"
)

// program returns a stripped program, and its debug file, which is available only from
// the server.
func program(t *testing.T) (path, id string, debug []byte, addr uint64) {
	t.Helper()
	testprog.Need(t, "gcc", "objcopy", "strip", "nm")
	dir := t.TempDir()
	src := "int helper(int x) {\n\treturn x * 3;\n}\nint main(int c, char **v) {\n\treturn helper(c);\n}\n"
	if err := os.WriteFile(filepath.Join(dir, "p.c"), []byte(src), 0o666); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-ec", "gcc -O0 -g -Wl,--build-id=sha1 p.c -o p; nm p | grep ' helper$' | cut -d' ' -f1 >addr; objcopy --only-keep-debug p p.dbg; strip p")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	path = filepath.Join(dir, "p")
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if id, err = symbol.BuildID(f); err != nil {
		t.Fatal(err)
	}
	if debug, err = os.ReadFile(filepath.Join(dir, "p.dbg")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "addr"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(string(text), "%x", &addr); err != nil {
		t.Fatal(err)
	}
	return path, id, debug, addr
}

// server is a server with files by build ID.
type server struct {
	*httptest.Server
	asked atomic.Int32
}

func serve(t *testing.T, files map[string][]byte, handle func(w http.ResponseWriter, b []byte)) *server {
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		id, ok := strings.CutPrefix(r.URL.Path, "/sub/buildid/")
		id, last, _ := strings.Cut(id, "/")
		b, there := files[id]
		if !ok || last != "debuginfo" || !there {
			http.NotFound(w, r)
			return
		}
		handle(w, b)
	}))
	t.Cleanup(s.Close)
	return s
}

func whole(w http.ResponseWriter, b []byte) { w.Write(b) }

type said struct {
	mu sync.Mutex
	s  []string
}

func (s *said) add(x string) { s.mu.Lock(); s.s = append(s.s, x); s.mu.Unlock() }

func finder(t *testing.T, dir *cache.Dir, urls string) (*Finder, *said) {
	t.Helper()
	p := &said{}
	f, err := New(func(k string) string {
		return map[string]string{URLs: urls, Timeout: "1"}[k]
	}, dir, "test", p.add)
	if err != nil || f == nil {
		t.Fatal(f, err)
	}
	return f, p
}

func folder(t *testing.T) *cache.Dir {
	t.Helper()
	d, err := cache.Open(t.TempDir(), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// line returns the name of the address in a file with that Finder.
func line(t *testing.T, path string, addr uint64, f symbol.Finder) string {
	t.Helper()
	r, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s, err := symbol.Open(r, symbol.Options{Path: path, Finder: f})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	fr := s.Frames(addr+8, nil)
	if len(fr) == 0 {
		return ""
	}
	return fmt.Sprintf("%s %s:%d", fr[0].Func, filepath.Base(fr[0].File), fr[0].Line)
}

func TestFind(t *testing.T) {
	path, id, debug, addr := program(t)
	if got := line(t, path, addr, nil); strings.Contains(got, "helper") {
		t.Fatalf("the stripped file says %q", got)
	}
	none := serve(t, nil, whole)
	s := serve(t, map[string][]byte{id: debug}, whole)
	dir := folder(t)
	f, p := finder(t, dir, none.URL+"/sub ima:enforcing "+s.URL+"/sub/")
	if got := line(t, path, addr, f); !strings.HasPrefix(got, "helper p.c:") {
		t.Errorf("got %q, %v", got, p.s)
	}
	// The next time it comes from the cache.
	g, _ := finder(t, dir, "http://127.0.0.1:1")
	if got := line(t, path, addr, g); !strings.HasPrefix(got, "helper p.c:") || s.asked.Load() != 1 || none.asked.Load() != 1 {
		t.Errorf("got %q, asked %d and %d times", got, none.asked.Load(), s.asked.Load())
	}
}

// Errors of a server cost names, and the server is not queried again.
func TestBadServers(t *testing.T) {
	path, id, debug, addr := program(t)
	hold := make(chan struct{})
	defer close(hold) // before the servers close
	for what, handle := range map[string]func(http.ResponseWriter, []byte){
		"nonsense": func(w http.ResponseWriter, _ []byte) { w.Write([]byte("<html>sign in</html>")) },
		"cut": func(w http.ResponseWriter, b []byte) {
			w.Header().Set("Content-Length", fmt.Sprint(len(b)))
			w.Write(b[:len(b)/2])
		},
		"error":   func(w http.ResponseWriter, _ []byte) { http.Error(w, "no", http.StatusInternalServerError) },
		"silence": func(http.ResponseWriter, []byte) { <-hold },
	} {
		s := serve(t, map[string][]byte{id: debug}, handle)
		dir := folder(t)
		f, p := finder(t, dir, s.URL+"/sub")
		for range 2 {
			if got := line(t, path, addr, f); strings.Contains(got, "helper") {
				t.Errorf("%s: %q", what, got)
			}
		}
		if what != "nonsense" && (s.asked.Load() != 1 || len(p.s) != 1 || !strings.Contains(p.s[0], "is not asked any more")) {
			t.Errorf("%s: asked %d times, said %q", what, s.asked.Load(), p.s)
		}
		if src, err := dir.File(id); err == nil {
			src.Close()
			t.Errorf("%s: it is kept", what)
		}
	}
}

func TestNew(t *testing.T) {
	for urls, ok := range map[string]bool{"": true, "http://a https://b": true, "nonsense": false, "ftp://a": false} {
		f, err := New(func(k string) string {
			if k == URLs {
				return urls
			}
			return ""
		}, nil, "", nil)
		if (err == nil) != ok || (f != nil) != (ok && urls != "") {
			t.Errorf("%q: %v, %v", urls, f, err)
		}
	}
}
