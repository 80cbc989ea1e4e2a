package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// byAsync runs async-profiler with one sample of each thread every 10 ms, the same as sliver, and
// counts those of the main thread. jcmd loads it into the program.
func byAsync(library string, pid int, span time.Duration, dir string, r *result) error {
	file := filepath.Join(dir, "async.folded")
	_ = os.Remove(file)
	agent := func(options string) error {
		out, err := exec.Command("jcmd", strconv.Itoa(pid), "JVMTI.agent_load", library, `"`+options+`"`).CombinedOutput() // unquoted, what follows "=" is cut off
		if err != nil || !strings.Contains(string(out), "return code: 0") {
			return fmt.Errorf("async-profiler: %w: %s", err, out)
		}
		return nil
	}
	// Threads are separate, and each frame has a kind: _[j] compiled, _[i] interpreted.
	output := ",collapsed,threads,ann,file=" + file
	if err := agent("start,event=wall,interval=10ms" + output); err != nil {
		return err
	}
	time.Sleep(span)
	if err := agent("stop" + output); err != nil {
		return err
	}
	return eachFolded(file, func(stack []string, n int) {
		if len(stack) < 2 || !strings.HasPrefix(stack[0], "[main ") {
			return
		}
		r.samples += n
		if whole(stack[1:]) {
			r.whole += n
		}
		for _, f := range slices.Backward(stack) {
			if name, ok := javaFrame(f); ok {
				r.self[last(strings.ReplaceAll(name, "/", "."))] += n
				break
			}
		}
	})
}

// javaFrame returns the method of a frame with async-profiler's annotation.
func javaFrame(frame string) (name string, ok bool) {
	for _, kind := range []string{"_[j]", "_[i]", "_[0]", "_[1]"} {
		if name, ok = strings.CutSuffix(frame, kind); ok {
			return name, true
		}
	}
	return "", false
}

// whole reports whether a stack of the main thread starts at the thread's start, in C or in Java, and
// has no frame that marks a missing part.
func whole(stack []string) bool {
	for _, f := range stack {
		if strings.HasPrefix(f, "[") || strings.Contains(f, "unknown") || strings.Contains(f, "not_walkable") {
			return false
		}
	}
	root, java := javaFrame(stack[0])
	// The java launcher's functions that compile a source and run it: launcher.Main in 17,
	// launcher.SourceLauncher in 25.
	return isStart(stack[0]) || strings.HasPrefix(stack[0], "start_thread") ||
		java && strings.Contains(root, "/launcher/") && strings.HasSuffix(root, ".main")
}

// attached prints the time from attaching to the first sample with a function of the program's
// language, for all programs in turn.
func attached(sliver string, programs []*program, rounds int) error {
	dir, err := os.MkdirTemp("", "runtimes")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	took := make([][]float64, len(programs)) // ms
	for i, p := range programs {
		cmd := exec.Command(p.argv[0], append(slices.Clone(p.argv[1:]), filepath.Join(dir, strconv.Itoa(i)))...)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			return err
		}
		defer func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}()
		time.Sleep(p.warm)
		for range rounds {
			ms, err := firstManaged(sliver, cmd.Process.Pid, p.kind, dir)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			took[i] = append(took[i], ms)
		}
		_ = cmd.Process.Kill()
	}
	fmt.Println("\n| attach to the first function of the language, ms | median | least | most |")
	fmt.Println("|---|---|---|---|")
	for i, p := range programs {
		slices.Sort(took[i])
		fmt.Printf("| %s | %.0f | %.0f | %.0f |\n", p.name, took[i][len(took[i])/2], took[i][0], took[i][len(took[i])-1])
	}
	return nil
}

// firstManaged records a process briefly and returns the ms from attaching to the first sample with a
// function of a kind.
func firstManaged(sliver string, pid int, kind, dir string) (float64, error) {
	file := filepath.Join(dir, "attach.sliver")
	out, err := exec.Command(sliver, "record", "-p", strconv.Itoa(pid), "-d", "700ms", "--json", "-q", "-o", file).Output()
	if err != nil {
		return 0, fmt.Errorf("sliver: %w: %s", err, stderrOf(err))
	}
	var sum struct {
		First int64 `json:"first_sample_ns"`
	}
	if err := json.Unmarshal(out, &sum); err != nil {
		return 0, err
	}
	least := func(question string, more ...string) (int64, error) {
		args := append([]string{"sql", file, question, "--format", "csv"}, more...)
		out, err := exec.Command(sliver, args...).Output()
		if err != nil {
			return 0, fmt.Errorf("sliver sql: %w: %s", err, stderrOf(err))
		}
		lines := strings.Fields(string(out))
		if len(lines) < 2 {
			return 0, fmt.Errorf("no function of kind %s within 700 ms", kind)
		}
		return strconv.ParseInt(lines[1], 10, 64)
	}
	first, err := least("select min(ts) from samples")
	if err != nil {
		return 0, err
	}
	managed, err := least("select min(ts) from slices", "--kinds", kind)
	if err != nil {
		return 0, err
	}
	return float64(sum.First+managed-first) / 1e6, nil
}
