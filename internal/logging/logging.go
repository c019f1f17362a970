// Package logging builds plegd's log: zap on a writer that may block, behind a bounded
// queue that never does. It is independent of the logged content.
package logging

import (
	"fmt"
	"io"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Formats of a log.
const (
	JSON    = "json"
	Console = "console"
)

// New returns a log that writes one line per entry to w. Logging never blocks;
// Sync waits up to 200 ms until the queued lines are written.
func New(level zapcore.Level, format string, w io.Writer) *zap.Logger {
	enc := encoder(format)
	direct := zapcore.NewCore(enc, zapcore.AddSync(w), level)
	q := newQueue(w, func(dropped uint64) error {
		return direct.Write(zapcore.Entry{
			Level: zapcore.WarnLevel, Time: time.Now(), Message: fmt.Sprintf("%d log lines were dropped", dropped),
		}, nil)
	})
	return zap.New(zapcore.NewCore(enc, q, level), zap.ErrorOutput(q))
}

func encoder(format string) zapcore.Encoder {
	cfg := zap.NewProductionEncoderConfig()
	cfg.TimeKey = "time"
	cfg.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	if format == Console {
		return zapcore.NewConsoleEncoder(cfg)
	}
	return zapcore.NewJSONEncoder(cfg)
}
