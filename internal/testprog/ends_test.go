package testprog

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// A program of a test that is killed ends with it, although nothing of the test runs any more.
func TestProgramsEndWithTheirTest(t *testing.T) {
	if os.Getenv("SLIVER_TEST_KILLED") != "" {
		fmt.Println(Start(t, "/bin/sleep", "600").PID)
		UntilKilled()
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestProgramsEndWithTheirTest$")
	cmd.Env = append(os.Environ(), "SLIVER_TEST_KILLED=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait() // killed
	defer cmd.Process.Kill()
	line, _ := bufio.NewReader(out).ReadString('\n')
	var pid int
	if _, err := fmt.Sscan(line, &pid); err != nil || pid <= 1 {
		t.Fatalf("%q, %v", line, err)
	}
	sleep, err := os.FindProcess(pid) // a pidfd: the number may be used again
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	awaitEnd(sleep)
}
