package server

import (
	"fmt"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// logRecorder records a log.
type logRecorder struct {
	log *zap.Logger
	*observer.ObservedLogs
}

func newLogRecorder() *logRecorder {
	core, logs := observer.New(zap.InfoLevel)
	return &logRecorder{zap.New(core), logs}
}

// String returns a line per entry.
func (l *logRecorder) String() string {
	var b strings.Builder
	for _, e := range l.All() {
		fmt.Fprintf(&b, "level=%s %s %v\n", e.Level, e.Message, e.ContextMap())
	}
	return b.String()
}

func (l *logRecorder) count(s string) int { return strings.Count(l.String(), s) }
