// Package notify sends notifications about a dump: by a command, a web hook, or the
// system's journal. Each function takes a context and returns an error that says what
// failed. The package does not depend on dumps. Its functions may be called concurrently.
package notify

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/sliverprof/sliver/internal/background"
)

// Limits of one notification.
const (
	// Patience limits how long a command or web hook may take.
	Patience = 30 * time.Second
	// maxOutput is how much of a command's output an error quotes.
	maxOutput = 300
)

// Field is one name and value; the name is in capitals with underscores.
type Field struct{ Name, Value string }

// Exec runs command in a shell, with the fields in its environment.
func Exec(ctx context.Context, command string, fields []Field) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	cmd.Env = os.Environ()
	for _, f := range fields {
		cmd.Env = append(cmd.Env, f.Name+"="+strings.ReplaceAll(f.Value, "\x00", " "))
	}
	// Its child processes are killed with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	var err error
	if background.Do(func() { err = cmd.Start() }); err == nil {
		err = cmd.Wait()
	}
	if ctx.Err() != nil {
		return fmt.Errorf("the command took longer than %v and was ended", Patience)
	}
	if err != nil {
		return fmt.Errorf("the command failed: %w: %.*s", err, maxOutput, bytes.TrimSpace(out.Bytes()))
	}
	return nil
}

// Webhook posts a JSON body.
func Webhook(ctx context.Context, url string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("web hook: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "sliver")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("web hook: %w", err)
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 1<<20))
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("web hook: the server answered %s", res.Status)
	}
	return nil
}

// CheckWebhook validates the address of a web hook.
func CheckWebhook(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("invalid web hook address %q (example: https://example.org/hook)", address)
	}
	return nil
}

// JournalSocket is the socket of systemd's journal.
const JournalSocket = "/run/systemd/journal/socket"

// ErrNoJournal reports that no journal runs on this machine.
var ErrNoJournal = errors.New("no journal is running here")

// Journal sends an entry to the journal that listens at socket.
func Journal(socket string, fields []Field) error {
	if _, err := os.Stat(socket); err != nil {
		return ErrNoJournal
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	defer c.Close()
	if _, err := c.Write(entry(fields)); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// entry encodes the journal's own format: NAME=value or, for a value of several lines,
// NAME, its length in 64 bits and the value (https://systemd.io/JOURNAL_NATIVE_PROTOCOL).
func entry(fields []Field) []byte {
	var b []byte
	for _, f := range fields {
		b = append(b, f.Name...)
		if strings.Contains(f.Value, "\n") {
			b = append(b, '\n')
			b = binary.LittleEndian.AppendUint64(b, uint64(len(f.Value)))
		} else {
			b = append(b, '=')
		}
		b = append(append(b, f.Value...), '\n')
	}
	return b
}
