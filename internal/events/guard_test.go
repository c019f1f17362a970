package events

import (
	"strings"
	"testing"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/check"
)

func TestUnsafe(t *testing.T) {
	for version, unsafe := range map[string]bool{
		"1.6.20": false, "1.6.20~ds1": false, // has no events, and says so
		"1.7.24": true, "v1.7.20-k3s1": true, "1.7": true, "1.7.24~ds1": true, "1.8.0": true,
		"2.0.0": false, "v2.4.2": false, "2.1.9~ds1": false, "v2.4.2+unknown": false, "2.0-rc.1": false,
		"": true, "main": true, "v1.x": true,
	} {
		why := Unsafe(facts.Runtime{Name: "containerd", Version: version})
		check.Equal(t, why != "", unsafe, "containerd %q: %q", version, why)
		if unsafe && (!strings.Contains(why, version) || !strings.Contains(why, "--events=off") || !strings.Contains(why, "--events-allow-unsafe") || strings.Contains(why, "\n")) {
			t.Errorf("%q: want the version and what to do, in one line", why)
		}
	}
	for _, name := range []string{"cri-o", "docker", ""} {
		check.Equal(t, Unsafe(facts.Runtime{Name: name, Version: "1.7.0"}), "", "%q", name)
	}
}
