//go:build e2e

package lab

import (
	"bytes"
	"encoding/json"
	"os"
	"sync"
	"testing"
	"time"
)

// Log collects plegd's log, line by line, and copies it to a file.
type Log struct {
	mu      sync.Mutex
	file    *os.File
	partial []byte
	lines   []Line
}

// Line is one line of a log.
type Line struct {
	// At is when the line was read.
	At time.Time
	// Text is the line itself.
	Text string
	// Fields are the line's fields; nil when it is not JSON.
	Fields map[string]any
}

func newLog(t testing.TB, path string) *Log {
	t.Helper()
	f, err := os.Create(path)
	Must(t, err)
	return &Log{file: f}
}

// Write takes a piece of the log.
func (l *Log) Write(b []byte) (int, error) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.file.Write(b)
	l.partial = append(l.partial, b...)
	for {
		i := bytes.IndexByte(l.partial, '\n')
		if i < 0 {
			return len(b), nil
		}
		line := Line{At: now, Text: string(l.partial[:i])}
		if json.Unmarshal(l.partial[:i], &line.Fields) != nil {
			line.Fields = nil
		}
		l.lines = append(l.lines, line)
		l.partial = l.partial[i+1:]
	}
}

// Close closes the file.
func (l *Log) Close() error { return l.file.Close() }

// Len is how many lines there are so far; Since(Len()) are those to come.
func (l *Log) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lines)
}

// Since returns the lines from the n-th on.
func (l *Log) Since(n int) []Line {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Line(nil), l.lines[n:]...)
}

// Level is the line's level.
func (l Line) Level() string { return l.String("level") }

// Message is what the line says.
func (l Line) Message() string { return l.String("msg") }

// String returns a field that is a string, "" where there is none.
func (l Line) String(field string) string {
	s, _ := l.Fields[field].(string)
	return s
}

// Quiet reports whether a line is below the level info: one that a log at its
// usual level does not hold. A line that is not JSON is never quiet.
func (l Line) Quiet() bool { return l.Level() == "debug" }
