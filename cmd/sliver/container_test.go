package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sliverprof/sliver/internal/testprog"
)

// recipe returns a Containerfile's instructions by stage.
func recipe(t *testing.T) (stages [][][]string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(testprog.Root(t), "deploy", "Containerfile"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		switch {
		case len(f) == 0 || f[0][0] == '#':
		case f[0] == "FROM":
			stages = append(stages, [][]string{f})
		case !slices.Contains([]string{"ARG", "WORKDIR", "COPY", "RUN", "ENV", "ENTRYPOINT"}, f[0]) || len(stages) == 0:
			t.Fatalf("what is %q?", line)
		default:
			last := &stages[len(stages)-1]
			*last = append(*last, f)
		}
	}
	return stages
}

// The image of deploy/Containerfile, built by hand as its second stage says, is all that
// sliver needs. In a root without anything else it waits for a process as the user that
// owns the recipe's folders, and answers requests.
func TestContainerRecipe(t *testing.T) {
	testprog.Need(t, "root", "setpriv")
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	stages := recipe(t)
	if len(stages) != 2 || stages[1][0][1] != "scratch" {
		t.Fatalf("%q", stages)
	}
	first := map[string]string{} // of the first stage
	for _, f := range stages[0] {
		line := strings.Join(f, " ")
		if f[0] != "RUN" || !strings.Contains(line, "go build") {
			continue
		}
		if !strings.Contains(line, "CGO_ENABLED=0") || !strings.Contains(line, "-o /sliver ./cmd/sliver") {
			t.Errorf("%q", line)
		}
		dirs, _ := strings.CutPrefix(line[strings.Index(line, "mkdir -p "):], "mkdir -p ")
		for d := range strings.FieldsSeq(dirs) {
			first[d] = ""
		}
		first["/sliver"] = bin
	}
	root, err := os.MkdirTemp("", "sliver-image-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd := exec.Command("rm", "-rf", "--one-file-system", root); cmd.Run() != nil {
			t.Errorf("%s stays", root)
		}
	})
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "bash", "-c",
		`mount --bind /proc "$0/proc" && exec chroot --userspec=65532:65532 "$0" "$@"`, root)
	for _, f := range stages[1] {
		switch f[0] {
		case "COPY":
			from, to := f[len(f)-2], filepath.Join(root, f[len(f)-1])
			owner := 0
			if slices.Contains(f, "--chown=65532:65532") {
				owner = 65532
			}
			for path, file := range first {
				rest, ok := strings.CutPrefix(path, strings.TrimSuffix(from, "/"))
				if !ok {
					continue
				}
				if file == "" {
					if err := os.Mkdir(to+rest, 0o755); err != nil {
						t.Fatal(err)
					}
				} else if b, err := os.ReadFile(file); err != nil || os.WriteFile(to+rest, b, 0o755) != nil {
					t.Fatal(err)
				}
				if err := os.Chown(to+rest, owner, owner); err != nil {
					t.Fatal(err)
				}
			}
		case "ENV":
			cmd.Env = append(cmd.Env, f[1:]...)
		case "ENTRYPOINT":
			cmd.Args = append(cmd.Args, strings.Trim(f[1], `["]`))
		}
	}
	if err := os.Mkdir(filepath.Join(root, "proc"), 0o755); err != nil { // the container runtime creates it
		t.Fatal(err)
	}
	cmd.Args = append(cmd.Args, "watch", "--name", "nosuch", "--dir", "/dumps", "--log", "json")
	cmd.Env = append(cmd.Env, "PATH="+os.Getenv("PATH"))
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	waitFor(t, func() bool {
		select {
		case <-ended:
			t.Fatalf("it ended: %s", errs.String())
		default:
		}
		sockets, _ := filepath.Glob(filepath.Join(root, "run", "sliver", "*.sock"))
		return len(sockets) == 1
	})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ended
	if !cmd.ProcessState.Success() || !strings.Contains(errs.String(), `"msg":"waiting"`) {
		t.Errorf("%v: %s", cmd.ProcessState, errs.String())
	}
}
