//go:build e2e

package lab

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// Number is the number, 1 or more, that the environment has under a name.
func Number(t testing.TB, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q: want a number, 1 or more", name, text)
	}
	return n
}

// Duration is the time that the environment has under a name, within bounds.
func Duration(t testing.TB, name string, otherwise, least, most time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < least || d > most {
		t.Fatalf("%s is %q: want a time from %s to %s", name, text, least, most)
	}
	return d
}
