package notify

import (
	"fmt"
	"net"
	"strings"
	"time"
)

// Service sends this program's state to the service manager that listens at socket, in
// lines such as READY=1 or STATUS=… (sd_notify(3)). socket is the value of
// $NOTIFY_SOCKET; one that begins with "@" is in the abstract namespace. If it is "",
// Service does nothing.
func Service(socket string, lines ...string) error {
	if socket == "" {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	defer c.Close()
	if err := c.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := c.Write([]byte(strings.Join(lines, "\n"))); err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	return nil
}
