package proc

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
)

// ReadLimited reads a file; an error where it has more than limit bytes.
func ReadLimited(file string, limit int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read from
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		return nil, fmt.Errorf("%s is larger than %d bytes", file, limit)
	}
	return b, err
}

// SplitArgs splits a /proc/PID/cmdline.
func SplitArgs(b []byte) []string {
	b = bytes.TrimRight(b, "\x00")
	if len(b) == 0 {
		return nil
	}
	return strings.Split(string(b), "\x00")
}

// ArgValue returns the value of the first "-name value", "--name value" or
// "-name=value" among the arguments.
func ArgValue(args []string, name string) string {
	for i, arg := range args {
		bare, ok := strings.CutPrefix(arg, "-")
		if !ok {
			continue
		}
		bare = strings.TrimPrefix(bare, "-")
		if bare == name && i+1 < len(args) {
			return args[i+1]
		}
		if value, ok := strings.CutPrefix(bare, name+"="); ok {
			return value
		}
	}
	return ""
}
