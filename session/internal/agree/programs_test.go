package agree

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// A program is a real program that works until the test ends.
type program struct {
	name  string
	needs []string
	// start starts its work. Each pick selects one kind of its processes.
	start func(t *testing.T) []pick
}

// A pick returns a process to examine; ok is false while there is none.
type pick func() (pid int, ok bool)

var programs = []program{
	{"redis", []string{"redis"}, startRedis},
	{"nginx", []string{"nginx"}, startNginx},
	{"postgres", []string{"postgres", "initdb"}, startPostgres},
	{"sqlite3", []string{"sqlite3"}, startSQLite},
	{"python3", []string{"python3"}, startPython},
	{"node", []string{"node"}, startNode},
	{"cc1plus", []string{"g++"}, startCompiler},
	{"go build", []string{"go", "objcopy"}, startGoBuild},
}

// launch starts a command whose process group is killed when the test ends, or is killed.
func launch(t *testing.T, cmd *exec.Cmd) *testprog.Proc {
	t.Helper()
	p := testprog.StartCmd(t, cmd)
	t.Cleanup(guard(t, p.PID, "kill -KILL -- -$0"))
	return p
}

func always(pid int) []pick { return []pick{func() (int, bool) { return pid, true }} }

// write creates a world-readable file, in a world-accessible folder.
func write(t *testing.T, name, content string) (path string) {
	t.Helper()
	path = filepath.Join(folder(t), name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

// freePort returns a port without a listener.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

func listens(t *testing.T, p *testprog.Proc, port string) {
	t.Helper()
	eventually(t, "listening on "+port, func() bool {
		select {
		case <-p.Exited():
			t.Fatalf("it ended; output %q %q", p.Output(), p.Errors())
		default:
		}
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			return false
		}
		c.Close()
		return true
	})
}

func startRedis(t *testing.T) []pick {
	bench, err := exec.LookPath("redis-benchmark")
	if err != nil {
		t.Skipf("redis-server has no redis-benchmark beside it: %v", err)
	}
	port := freePort(t)
	p := launch(t, exec.Command(testprog.Tool(t, "redis"), "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", folder(t)))
	listens(t, p, port)
	launch(t, exec.Command(bench, "-p", port, "-l", "-q", "-c", "20", "-n", "20000", "-t", "set,get,lpush,lrange_300,sadd,zadd,mset"))
	return always(p.PID)
}

func startNginx(t *testing.T) []pick {
	var text strings.Builder
	for i := range 60000 {
		fmt.Fprintf(&text, "line %d of a text that is neither short nor all the same: %x\n", i, i*i*2654435761)
	}
	dir := filepath.Dir(write(t, "index.html", text.String()))
	port := freePort(t)
	var asRoot string
	if os.Geteuid() == 0 {
		asRoot = "user root;"
	}
	conf := write(t, "nginx.conf", fmt.Sprintf(`%s
daemon off; worker_processes 1; error_log stderr; pid %[2]s/pid;
events { worker_connections 64; }
http {
	access_log off; gzip on; gzip_types *; gzip_comp_level 6;
	client_body_temp_path %[2]s/a; proxy_temp_path %[2]s/b; fastcgi_temp_path %[2]s/c;
	uwsgi_temp_path %[2]s/d; scgi_temp_path %[2]s/e;
	server { listen 127.0.0.1:%[3]s; location / { root %[2]s; } }
}`, asRoot, dir, port))
	p := launch(t, exec.Command(testprog.Tool(t, "nginx"), "-p", dir, "-e", "stderr", "-c", conf))
	listens(t, p, port)
	load(t, "http://127.0.0.1:"+port+"/index.html")
	return []pick{func() (int, bool) {
		return find(func(q process) bool { return q.parent == p.PID && q.name == "nginx" })
	}}
}

// load runs two clients that request a page until the test ends.
func load(t *testing.T, url string) {
	ctx := t.Context()
	for range 2 {
		go func() {
			for ctx.Err() == nil {
				req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
				if err != nil {
					return
				}
				req.Header.Set("Accept-Encoding", "gzip")
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					return // the server ends with the test
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}()
	}
}

const postgresLoad = `SELECT pg_backend_pid();
CREATE TABLE t AS SELECT g AS id, md5(g::text) AS h, g % 97 AS k FROM generate_series(1, 40000) g;
CREATE INDEX ON t (h);
CREATE FUNCTION f(n int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE s int := 0; r record;
BEGIN
	IF n > 0 THEN RETURN f(n - 1) + 1; END IF;
	FOR r IN SELECT k, count(*) AS c, max(h) AS m FROM t WHERE h ~ '^[0-9a-f]*7' GROUP BY k ORDER BY c, m LOOP
		s := s + length(r.m);
	END LOOP;
	RETURN s;
END $$;
DO $$ BEGIN
	LOOP
		PERFORM f(5);
		PERFORM count(*) FROM t a JOIN t b ON a.h = b.h WHERE a.k < 50;
		UPDATE t SET k = (k + 1) % 97 WHERE id % 50 = 0;
		PERFORM sum(x::numeric * 1.1) FROM generate_series(1, 20000) x;
	END LOOP;
END $$;
`

// servePostgres starts a private server and returns a function that builds its clients:
// psql with additional arguments.
func servePostgres(t *testing.T) (server *testprog.Proc, psql func(args ...string) *exec.Cmd) {
	path := testprog.Tool(t, "postgres")
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	bin := filepath.Dir(path)
	dir := folder(t)
	attr := func() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
	if os.Geteuid() == 0 { // it refuses to run as root
		u, err := user.Lookup("postgres")
		if err != nil {
			if u, err = user.Lookup("nobody"); err != nil {
				t.Skipf("root, and no other user to run postgres as: %v", err)
			}
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
		attr = func() *syscall.SysProcAttr {
			return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		}
	}
	command := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(bin, name), args...)
		cmd.Dir, cmd.SysProcAttr = dir, attr()
		cmd.Env = append(os.Environ(), "HOME="+dir, "LC_ALL=C")
		return cmd
	}
	data := filepath.Join(dir, "data")
	if out, err := command("initdb", "-D", data, "-A", "trust", "-U", "me", "--no-sync", "--locale=C").CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v: %s", err, out)
	}
	port := freePort(t)
	p := launch(t, command("postgres", "-D", data, "-p", port, "-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "shared_buffers=16MB", "-c", "max_parallel_workers_per_gather=0"))
	t.Cleanup(func() { // the backends are in process groups of their own
		_ = syscall.Kill(p.PID, syscall.SIGINT)
		<-p.Exited()
	})
	listens(t, p, port)
	psql = func(args ...string) *exec.Cmd {
		return command("psql", append([]string{"-X", "-q", "-A", "-t", "-h", "127.0.0.1", "-p", port, "-U", "me", "-d", "postgres"}, args...)...)
	}
	eventually(t, "postgres starts up", func() bool { // it may listen before it accepts sessions
		return psql("-c", "SELECT 1").Run() == nil
	})
	return p, psql
}

func startPostgres(t *testing.T) []pick {
	_, psql := servePostgres(t)
	line := launch(t, psql("-f", write(t, "load.sql", postgresLoad))).Line("")
	backend, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("psql printed %q for its backend's PID", line)
	}
	return always(backend)
}

func startSQLite(t *testing.T) []pick {
	const load = `WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c LIMIT 40000),
d AS (SELECT x, hex(randomblob(6)) AS h FROM c)
SELECT count(*), group_concat(substr(h,1,1)), max(h) FROM (SELECT h, x FROM d WHERE h LIKE '%A%' ORDER BY h, x DESC);
CREATE TABLE IF NOT EXISTS t(a INTEGER PRIMARY KEY, b TEXT); CREATE INDEX IF NOT EXISTS i ON t(b);
INSERT INTO t(b) SELECT value FROM json_each('["' || replace(hex(zeroblob(300)), '00', hex(randomblob(2)) || '","') || '"]');
SELECT sum(length(x.b)) FROM t x JOIN t y ON x.b = y.b WHERE x.a < 200;
DELETE FROM t WHERE a % 3 = 0;
`
	db := filepath.Join(folder(t), "db")
	script := write(t, "load.sql", ".output /dev/null\nPRAGMA synchronous=OFF;\n"+strings.Repeat(load, 2000))
	p := launch(t, exec.Command(testprog.Tool(t, "sqlite3"), "-batch", db, ".read "+script))
	return always(p.PID)
}

func startPython(t *testing.T) []pick {
	script := write(t, "load.py", `import json, re, sqlite3, threading, zlib, hashlib, functools, random
def deep(n, f):
    return f() if n == 0 else deep(n - 1, f) + 0
def words():
    return len(re.sub(r"(\w+)-(\d+)", lambda m: json.dumps({m.group(1): [int(m.group(2))] * 3}), "alpha-17 beta-4 " * 200))
class Thing:
    def __init__(self, x): self.x = x
    def __lt__(self, o): return self.x < o.x
    def __repr__(self): return "<%d>" % self.x
def order():
    return len(str(sorted(Thing(random.random() * 1000) for _ in range(2000))))
def tables():
    db = sqlite3.connect(":memory:")
    db.create_function("f", 1, lambda x: len(json.dumps({"x": x})))
    db.create_collation("back", lambda a, b: (a < b) - (a > b))
    db.execute("create table t(a, b)")
    db.executemany("insert into t values(?, ?)", ((i, str(i * 7919 % 1000)) for i in range(1000)))
    return db.execute("select sum(f(a)), max(b) from (select * from t order by b collate back)").fetchone()[0]
def sums():
    return functools.reduce(lambda a, b: a + b, map(lambda x: x * x, range(3000)))
def other():
    while True:
        zlib.compress(hashlib.sha512(b"x" * 300000).digest() * 2000, 9)
threading.Thread(target=other, daemon=True).start()
print("ready", flush=True)
while True:
    for n in (0, 3, 30, 200):
        for f in (words, order, tables, sums):
            deep(n, f)
`)
	p := launch(t, exec.Command(testprog.Tool(t, "python3"), script))
	p.Line("ready")
	return always(p.PID)
}

func startNode(t *testing.T) []pick {
	script := write(t, "load.js", `const zlib = require('zlib');
function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
function text() { return JSON.stringify(Array.from({length: 3000}, (_, i) => ({i, s: 'x'.repeat(i % 50)}))); }
const work = [
	() => fib(22),
	() => JSON.parse(text(), (k, v) => typeof v === 'number' ? v + 1 : v).length,
	() => Array.from({length: 5000}, () => Math.random()).sort((a, b) => a - b)[0],
	() => text().replace(/"s":"(x*)"/g, (m, x) => x.length).length,
	() => zlib.gzipSync(text()).length,
	() => [...new Map(Object.entries(JSON.parse(text()))).values()].map(o => o.s).join('').length,
];
function step(i) { work[i % work.length](); if (i % 50 === 0) zlib.gzip(text(), () => {}); setImmediate(step, i + 1); }
console.log('ready');
step(0);
`)
	p := launch(t, exec.Command(testprog.Tool(t, "node"), script))
	p.Line("ready")
	return always(p.PID)
}

func startCompiler(t *testing.T) []pick {
	var src strings.Builder
	src.WriteString("#include <algorithm>\n#include <functional>\n#include <map>\n#include <regex>\n#include <sstream>\n#include <unordered_map>\n")
	for i := range 40 {
		fmt.Fprintf(&src, `struct K%[1]d { int a[%[1]d + 1]; bool operator<(const K%[1]d &o) const { return a[0] < o.a[0]; } };
std::string f%[1]d(const std::string &s) {
	std::map<K%[1]d, std::unordered_map<std::string, std::function<int(K%[1]d)>>> m;
	std::vector<K%[1]d> v(s.size());
	std::stable_sort(v.begin(), v.end());
	for (auto &k : v) m[k][s] = [&](K%[1]d x) { return x.a[0] + (int)m.size(); };
	std::ostringstream o;
	for (auto &e : m) for (auto &g : e.second) o << g.first << g.second(e.first);
	return std::regex_replace(o.str(), std::regex("a(b|c)*%[1]d"), s);
}
`, i)
	}
	path := write(t, "heavy.cc", src.String())
	p := launch(t, exec.Command("sh", "-c", `while "$0" -O2 -S -o /dev/null "$1"; do :; done`, testprog.Tool(t, "g++"), path))
	return []pick{child(p, "cc1plus")}
}

// child picks a process of p's group by its name.
func child(p *testprog.Proc, name string) pick {
	return func() (int, bool) { return find(func(q process) bool { return q.group == p.PID && q.name == name }) }
}

// startGoBuild starts a go command and a compiler that are built here: a Go
// distribution's lack DWARF, the only place where Go's linker puts call frame
// information, and the oracles would have to guess.
//
// Only the call frame information of the DWARF is kept: gdb would read the rest at each
// start, for seconds.
func startGoBuild(t *testing.T) []pick {
	goTool, dir := testprog.Tool(t, "go"), folder(t)
	env := append(os.Environ(), "GOFLAGS=", "GOTOOLCHAIN=local", "CGO_ENABLED=0")
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir, cmd.Env = testprog.Root(t), env
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		return strings.TrimSpace(string(out))
	}
	run(goTool, "build", "-o", dir+"/", "cmd/go", "cmd/compile")
	for _, name := range []string{"go", "compile"} {
		run(testprog.Tool(t, "objcopy"), "--wildcard", "--remove-section", ".debug_[!f]*", filepath.Join(dir, name))
	}
	const script = `#!/bin/sh
case $1 in */compile) shift; exec "${0%/*}/compile" "$@" ;; esac
exec "$@"
`
	if err := os.WriteFile(filepath.Join(dir, "tool"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `while "$0/go" build -a -p 2 -toolexec "$0/tool" net/http go/types; do :; done`, dir)
	cmd.Dir = testprog.Root(t)
	cmd.Env = append(env, "GOROOT="+run(goTool, "env", "GOROOT"), "GOCACHE="+folder(t))
	p := launch(t, cmd)
	return []pick{child(p, "go"), child(p, "compile")}
}
