package files

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// tree is an artificial /proc: files by name, and links with an arrow before their target.
type tree struct {
	t     map[string]string
	reads atomic.Int64
}

func (d *tree) ReadFile(name string, limit int) ([]byte, error) {
	d.reads.Add(1)
	s, ok := d.t[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return []byte(s[:min(len(s), limit)]), nil
}

func (d *tree) ReadLink(name string) (string, error) {
	s, ok := strings.CutPrefix(d.t[name], "→")
	if !ok {
		return "", fs.ErrNotExist
	}
	return s, nil
}

func (d *tree) ReadDir(name string, limit int) ([]string, error) {
	d.reads.Add(1)
	seen := map[string]bool{}
	for k := range d.t {
		if name != "." {
			var ok bool
			if k, ok = strings.CutPrefix(k, name+"/"); !ok {
				continue
			}
		}
		k, _, _ = strings.Cut(k, "/")
		seen[k] = true
	}
	all := slices.Sorted(maps.Keys(seen))
	return all[:min(len(all), limit)], nil
}

type peers map[uint64]uint64

func (p peers) Peer(n uint64) (uint64, error) {
	if v, ok := p[n]; ok {
		return v, nil
	}
	return 0, errors.New("no such socket")
}

const (
	tcpTable = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 11 1 0000000000000000 100 0 0 10 0
   1: 0400000A:8AF2 0500000A:1538 01 00000000:00000000 00:00000000 00000000  1000        0 12 1 0000000000000000 20 4 30 10 -1
   2: broken line
`
	tcp6Table = `  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000001000000:1F90 00000000000000000000000001000000:C001 08 00000000:00000000 00:00000000 00000000     0        0 13 1 0000000000000000 20 0 0 10 -1
   1: 0000000000000000FFFF00000500000A:0016 0000000000000000FFFF00000600000A:C001 01 00000000:00000000 00:00000000 00000000     0        0 14 1 0000000000000000 20 0 0 10 -1
`
	unixTable = `Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 21 /run/y.sock
0000000000000000: 00000003 00000000 00000000 0001 03 22
0000000000000000: 00000003 00000000 00000000 0001 03 23 /run/y.sock
0000000000000000: 00000002 00000000 00000000 0002 01 24 /run/with blank 24
0000000000000000: 00000002 00000000 00000000 0005 03 25 @abstract
`
)

func fixture() (*tree, *tree, *Table, *int64) {
	proc := &tree{t: map[string]string{
		"net/tcp": tcpTable, "net/tcp6": tcp6Table, "net/unix": unixTable,
		"net/netlink": "sk Eth Pid Groups Rmem Wmem Dump Locks Drops Inode\n0000000000000000 15  77 00000001 0 0 0 2 0 31\n",
		"fd/0":        "→/var/lib/x.db", "fd/1": "→/tmp/a (deleted)", "fd/2": "→/memfd:scratch (deleted)", "fd/3": "→/dev/pts/4",
		"fd/4": "→socket:[12]", "fd/5": "→socket:[11]", "fd/6": "→socket:[13]", "fd/7": "→socket:[14]", "fd/8": "→socket:[22]",
		"fd/9": "→socket:[21]", "fd/10": "→socket:[24]", "fd/11": "→socket:[25]", "fd/12": "→socket:[31]", "fd/13": "→socket:[99]",
		"fd/14": "→pipe:[40]", "fdinfo/14": "pos:\t0\nflags:\t0100001\n", "fd/15": "→pipe:[41]", "fdinfo/15": "pos:\t0\nflags:\t0100000\n",
		"fd/16": "→anon_inode:[pidfd]", "fdinfo/16": "pos:\t0\nflags:\t02\nPid:\t88\nNSpid:\t88\n",
		"fd/17": "→pidfd:[5]", "fdinfo/17": "Pid:\t-1\n",
		"fd/18": "→anon_inode:[eventpoll]", "fdinfo/18": "pos:\t0\ntfd:        5 events: 19 data: 5\ntfd:        6 events: 19 data: 6\n",
		"fd/19": "→anon_inode:[timerfd]", "fdinfo/19": "clockid: 0\nticks: 0\nsettime flags: 00\nit_value: (12, 345000000)\nit_interval: (0, 0)\n",
		"fd/20": "→anon_inode:[signalfd]", "fdinfo/20": "sigmask:\t0000000000000802\n",
		"fd/21": "→anon_inode:inotify", "fdinfo/21": "inotify wd:1 ino:2 sdev:3\n",
		"fd/22": "→anon_inode:[userfaultfd]", "fdinfo/22": "pending:\t0\n", "fd/23": "→anon_inode:[eventfd]",
	}}
	sys := &tree{t: map[string]string{
		"77/comm": "sort\n", "77/fd/0": "→pipe:[40]", "77/fdinfo/0": "flags:\t0100000\n",
		"78/comm": "tee\n", "78/fd/3": "→pipe:[40]", "78/fdinfo/3": "flags:\t0100001\n", // another writer
		"79/comm": "db\n", "79/fd/5": "→socket:[23]", "version": "",
		"50/fd/15": "→pipe:[41]", "50/fd/30": "→pipe:[41]", "50/fdinfo/15": "flags:\t0100000\n", "50/fdinfo/30": "flags:\t0100001\n",
	}}
	now := new(int64)
	*now = 1
	return proc, sys, New(Config{PID: 50, Proc: proc, Sys: sys, Peers: peers{22: 23}, Now: func() int64 { return *now }, TTL: 100}), now
}

func TestDescribe(t *testing.T) {
	_, _, tab, _ := fixture()
	for _, c := range []struct {
		fd   int
		kind Kind
		text string
		peer int
		why  bool
	}{
		{0, File, "/var/lib/x.db", 0, false}, {1, File, "/tmp/a (deleted)", 0, false}, {2, Memfd, "memfd scratch", 0, false},
		{3, Terminal, "terminal /dev/pts/4", 0, false},
		{4, TCP, "tcp 10.0.0.5:5432 established", 0, false}, {5, TCP, "tcp 127.0.0.1:8080 listening", 0, false},
		{6, TCP, "tcp [::1]:49153 close wait", 0, false}, {7, TCP, "tcp 10.0.0.6:49153 established", 0, false},
		{8, Unix, "unix /run/y.sock to PID 79 (db)", 79, false}, {9, Unix, "unix /run/y.sock listening", 0, false},
		{10, Unix, "unix /run/with blank 24", 0, false}, {11, Unix, "unix @abstract", 0, false},
		{12, Socket, "netlink kobject_uevent", 0, false}, {13, Socket, "socket", 0, true},
		{14, Pipe, "pipe to PID 77 (sort)", 77, false}, {15, Pipe, "pipe within the process", 0, false},
		{16, Pidfd, "pidfd of 88", 0, false}, {17, Pidfd, "pidfd of a process that has ended", 0, false},
		{18, Epoll, "epoll of 2", 0, false}, {19, Timerfd, "timerfd, 12.345 s left (realtime)", 0, false},
		{20, Signalfd, "signalfd of INT,USR2", 0, false}, {21, Inotify, "inotify of 1", 0, false},
		{22, Other, "userfaultfd", 0, false}, {23, Eventfd, "eventfd", 0, true}, {24, Nothing, "descriptor 24", 0, true},
	} {
		if d := tab.Describe(c.fd); d.Kind != c.kind || d.Text != c.text || d.PeerPID != c.peer || (d.Why != "") != c.why || d.FD != c.fd {
			t.Errorf("%d: %+v, want %+v", c.fd, d, c)
		}
	}
}

// Results are cached for their TTL and no longer.
func TestCache(t *testing.T) {
	proc, sys, tab, now := fixture()
	for _, fd := range []int{0, 4, 8, 14} {
		tab.Describe(fd)
	}
	before := proc.reads.Load() + sys.reads.Load()
	for _, fd := range []int{0, 4, 8, 14} {
		tab.Describe(fd)
	}
	if n := proc.reads.Load() + sys.reads.Load(); n != before {
		t.Errorf("%d reads for what is known", n-before)
	}
	proc.t["fd/4"] = "→/etc/passwd" // closed, and its number reused
	if d := tab.Describe(4); d.Text != "/etc/passwd" {
		t.Errorf("%+v", d)
	}
	proc.t["fd/4"] = "→socket:[12]"
	proc.t["net/tcp"] = strings.Replace(tcpTable, "0500000A:1538 01", "0500000A:1538 08", 1)
	tab.Describe(4)
	*now += 101
	if d := tab.Describe(4); d.Text != "tcp 10.0.0.5:5432 close wait" {
		t.Errorf("%+v", d)
	}
}

func TestWithoutOthers(t *testing.T) {
	proc, _, _, _ := fixture()
	tab := New(Config{PID: 50, Proc: proc, Now: func() int64 { return 1 }})
	if d := tab.Describe(14); d.Kind != Pipe || d.PeerPID != 0 {
		t.Errorf("%+v", d)
	}
	if d := tab.Describe(8); d.Text != "unix stream" || d.PeerPID != 0 {
		t.Errorf("%+v", d)
	}
}

func TestParseLocks(t *testing.T) {
	const text = `1: POSIX  ADVISORY  WRITE 2113 00:2b:2086 0 EOF
1: -> POSIX  ADVISORY  READ 2120 00:2b:2086 10 29
2: FLOCK  ADVISORY  WRITE 77 fe:01:99 0 EOF
2: -> FLOCK  ADVISORY  WRITE 78 fe:01:99 0 EOF
2: -> FLOCK  ADVISORY  WRITE 79 fe:01:99 0 EOF
3: OFDLCK ADVISORY  READ  -1 fe:01:100 5 9
4: LEASE  ACTIVE    READ 5 fe:01:7 0 EOF
`
	all, err := ParseLocks([]byte(text))
	if err != nil || len(all) != 7 {
		t.Fatalf("%v %+v", err, all)
	}
	if want := (FileLock{ID: 1, Waiting: true, Class: "POSIX", PID: 2120, Minor: 0x2b, Inode: 2086, Start: 10, End: 29}); all[1] != want {
		t.Errorf("%+v", all[1])
	}
	if l := all[5]; l.PID != -1 || l.Major != 0xfe || l.Write {
		t.Errorf("%+v", l)
	}
	w, ok := Waiter(all, "FLOCK", 79, 99)
	if h := HoldersOf(all, &w); !ok || len(h) != 1 || h[0].PID != 77 {
		t.Errorf("%v %+v", ok, h)
	}
	if _, ok := Waiter(all, "FLOCK", 77, 99); ok {
		t.Error("the holder waits")
	}
	got, err := ParseLocks([]byte(text + "nonsense\n"))
	if err == nil || len(got) != 7 || !strings.Contains(err.Error(), fmt.Sprint(len(text))) {
		t.Errorf("%v, %d locks", err, len(got))
	}
}

func TestSockaddr(t *testing.T) {
	for _, c := range []struct{ b, want string }{
		{"\x02\x00\x15\x38\x0a\x00\x00\x05", "10.0.0.5:5432"},
		{"\x0a\x00\x00\x50\x00\x00\x00\x00" + strings.Repeat("\x00", 15) + "\x01", "[::1]:80"},
		{"\x01\x00/run/y.sock\x00junk", "/run/y.sock"}, {"\x01\x00\x00name", "@name"},
		{"\x28\x00zz", "address family 40"}, {"\x02", ""}, {"\x02\x00\x15", "address family 2"},
	} {
		if got := Sockaddr([]byte(c.b)); got != c.want {
			t.Errorf("%q: %q, want %q", c.b, got, c.want)
		}
	}
}

func FuzzTables(f *testing.F) {
	f.Add([]byte(tcpTable))
	f.Add([]byte(unixTable))
	f.Add([]byte(tcp6Table))
	f.Fuzz(func(t *testing.T, b []byte) {
		to := map[uint64]conn{}
		parseInet(b, TCP, "tcp", false, to)
		parseInet(b, UDP, "udp6", true, to)
		parseUnix(b, to)
		parseNetlink(b, to)
		parsePacket(b, to)
		for n := range to {
			if n == 0 {
				t.Error("inode 0")
			}
		}
	})
}

func FuzzLocks(f *testing.F) {
	f.Add([]byte("1: POSIX  ADVISORY  WRITE 2113 00:2b:2086 0 EOF\n"))
	f.Add([]byte("1: -> FLOCK  ADVISORY  WRITE 2113 00:2b:2086 0 9\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, _ := ParseLocks(b)
		for i := range all {
			HoldersOf(all, &all[i])
		}
	})
}

func FuzzAnonymous(f *testing.F) {
	f.Add("timerfd", []byte("clockid: 1\nit_value: (1, 2)\n"))
	f.Add("signalfd", []byte("sigmask:\tffffffffffffffff\n"))
	f.Add("pidfd", []byte("Pid:\t0\n"))
	f.Fuzz(func(t *testing.T, sort string, b []byte) {
		if d := Anonymous(sort, b); sort != "" && d.Text == "" {
			t.Errorf("%+v", d)
		}
		Sockaddr(b)
		accessOf(b)
	})
}
