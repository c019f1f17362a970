package proc

import (
	"strings"
	"testing"

	"github.com/plegd/plegd/test/evidencetest"
)

// FuzzCgroup gives any content to each parser.
func FuzzCgroup(f *testing.F) {
	for _, s := range []string{
		"12:pids:/a\n10:freezer:/a\n1:name=systemd:/a\n", "0::/a/b\n", "1:a,,b:/:/\n", ":::", "1:name=systemd:/a:b\n",
		"nr_periods 5\nnr_throttled 3\nthrottled_time 100\n", "nr_periods 5\nthrottled_usec 18446744073709551615\n",
		"x -1\n", " 5\n", "max\n", "9223372036854771712\n", "-1\n", "99999999999999999999\n",
		"some avg10=NaN avg60=-1 avg300=1e400 total=-1\n", "full\nsome avg10\n",
	} {
		f.Add(s)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content string) {
		c := ParseCgroups([]byte(content))
		for name, path := range c {
			if !strings.HasPrefix(path, "/") || strings.ContainsAny(name, ":\n") || strings.Contains(path, "\n") {
				t.Errorf("%q: %q of %q", name, path, content)
			}
		}
		if p := c.Main(); !strings.HasPrefix(p, "/") {
			t.Errorf("path %q of %q", p, content)
		}
		evidencetest.WriteTree(t, dir, map[string]string{"cpu.stat": content})
		for name := range Counters(dir, "cpu.stat") {
			if strings.ContainsAny(name, " \n") {
				t.Errorf("%q of %q", name, content)
			}
		}
		if n, l := Number(dir+"/cpu.stat"), Limit(dir+"/cpu.stat"); n < -1 || l < 0 {
			t.Errorf("%q is %d, as a limit %d", content, n, l)
		}
		if s, ok := ReadCPUStat(dir); s.Time < 0 || !ok && s.Periods != 0 {
			t.Errorf("%+v, %v of %q", s, ok, content)
		}
		for _, line := range []string{"some", "full"} {
			if v := Pressure(dir+"/cpu.stat", line); v != -1 && !(v >= 0 && v <= 100) {
				t.Errorf("pressure %v of %q", v, content)
			}
		}
	})
}
