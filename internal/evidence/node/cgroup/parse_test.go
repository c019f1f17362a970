package cgroup

import (
	"strings"
	"testing"

	"github.com/plegd/plegd/internal/fuzzcorpus"
)

func FuzzParseCgroups(f *testing.F) {
	fuzzcorpus.Add(f)
	for _, s := range []string{"12:pids:/a\n10:freezer:/a\n1:name=systemd:/a\n", "0::/a/b\n", "4:cpu,cpuacct:/a\n", "0::/../x\n", "1:a,,b:/:/\n", ":::", "1:name=systemd:/a:b\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c := ParsePaths(b)
		for name, path := range c {
			if !strings.HasPrefix(path, "/") || strings.ContainsAny(name, ":\n") || strings.Contains(path, "\n") {
				t.Errorf("%q: %q of %q", name, path, b)
			}
		}
		if p := c.Main(); !strings.HasPrefix(p, "/") {
			t.Errorf("path %q of %q", p, b)
		}
	})
}

func FuzzKeyed(f *testing.F) {
	fuzzcorpus.Add(f)
	for _, s := range []string{"nr_periods 5\nnr_throttled 3\n", "populated 1\nfrozen 0", "x -1\n", "a  1", "18446744073709551615 18446744073709551615", " 5\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for name := range Keyed(b) {
			if name == "" || strings.ContainsAny(name, " \n") {
				t.Errorf("%q of %q", name, b)
			}
		}
	})
}

// FuzzCgroupNumber reads what a file of a cgroup holds.
func FuzzCgroupNumber(f *testing.F) {
	fuzzcorpus.Add(f)
	for _, s := range []string{"max\n", "9223372036854771712\n", "-1\n", "0", " 12 \n", "12 34\n", "99999999999999999999\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, err := parseNumber(b); n < 0 && err == nil {
			t.Errorf("%q is %d", b, n)
		}
	})
}

func FuzzParseCPUStat(f *testing.F) {
	fuzzcorpus.Add(f)
	f.Add([]byte("nr_periods 5\nnr_throttled 3\nthrottled_time 100\n"))
	f.Add([]byte("usage_usec 1\nnr_periods 5\nnr_throttled 3\nthrottled_usec 18446744073709551615\n"))
	f.Add([]byte("nr_periods x\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, ok := ParseCPUStat(b); s.Time < 0 || !ok && s.Periods != 0 {
			t.Errorf("%+v, %v of %q", s, ok, b)
		}
	})
}
