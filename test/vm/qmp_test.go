//go:build e2e

package vm

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"time"
)

// qmp is a connection to qemu's monitor.
type qmp struct {
	conn    net.Conn
	scanner *bufio.Scanner
}

// qmpMessage is what the monitor sends: an answer or an event.
type qmpMessage struct {
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Desc string `json:"desc"`
	} `json:"error"`
	Event string `json:"event"`
}

// qmpLimit is how long the monitor may take to answer.
const qmpLimit = time.Minute

func dialQMP(socket string) (*qmp, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	q := &qmp{conn: conn, scanner: bufio.NewScanner(conn)}
	if _, err := q.read(qmpLimit); err != nil { // the greeting
		return nil, err
	}
	return q, q.execute("qmp_capabilities")
}

func (q *qmp) close() { _ = q.conn.Close() }

// execute runs a command of the monitor and waits for its answer.
func (q *qmp) execute(command string) error {
	b, err := json.Marshal(map[string]string{"execute": command})
	if err != nil {
		return err
	}
	if _, err := q.conn.Write(b); err != nil {
		return fmt.Errorf("qmp %s: %w", command, err)
	}
	for {
		m, err := q.read(qmpLimit)
		switch {
		case err != nil:
			return fmt.Errorf("qmp %s: %w", command, err)
		case m.Error != nil:
			return fmt.Errorf("qmp %s: %s", command, m.Error.Desc)
		case m.Return != nil:
			return nil
		}
	}
}

// await waits for an event. Events that came before an answer are gone.
func (q *qmp) await(event string, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for {
		m, err := q.read(time.Until(deadline))
		if err != nil {
			return fmt.Errorf("qmp event %s: %w", event, err)
		}
		if m.Event == event {
			return nil
		}
	}
}

func (q *qmp) read(limit time.Duration) (m qmpMessage, err error) {
	if err := q.conn.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return m, err
	}
	if !q.scanner.Scan() {
		if err := q.scanner.Err(); err != nil {
			return m, err
		}
		return m, net.ErrClosed
	}
	return m, json.Unmarshal(q.scanner.Bytes(), &m)
}
