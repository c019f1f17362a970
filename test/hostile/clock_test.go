//go:build e2e

package hostile

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/fakeruntime"
)

// stepGo is added to the standard library's package time: from a moment on the
// wall clock is stepped, and the monotonic clock continues, as after
// clock_settime(CLOCK_REALTIME). No namespace covers that clock, and a static
// binary cannot be made to load another one; so plegd is built with this one.
const stepGo = `package time

import "syscall"

var stepBy, stepAfter = func() (int64, int64) {
	by, _ := syscall.Getenv("TIME_STEP_BY")
	after, _ := syscall.Getenv("TIME_STEP_AFTER")
	n, err1 := atoi(by)
	m, err2 := atoi(after)
	if err1 != nil || err2 != nil {
		return 0, 0
	}
	return int64(n), int64(m) * 1e9
}()

func stepped(mono int64) int64 {
	if stepBy != 0 && mono-startNano >= stepAfter {
		return stepBy
	}
	return 0
}
`

// buildStepped builds plegd with a clock that steps.
func buildStepped(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	src := filepath.Join(runtime.GOROOT(), "src/time") //nolint:staticcheck // the test is run by `go test`, with its own tree
	b, err := os.ReadFile(filepath.Join(src, "time.go"))
	if err != nil {
		t.Skip("SKIPPED: the standard library's source is not there:", err)
	}
	const from, to = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n", "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n\tsec += stepped(mono)\n"
	if !strings.Contains(string(b), from) {
		t.Fatal("time.Now is not what it was: this test has to be adapted to this version of Go")
	}
	write(t, filepath.Join(dir, "time.go"), strings.Replace(string(b), from, to, 1))
	write(t, filepath.Join(dir, "step.go"), stepGo)
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {
		filepath.Join(src, "time.go"):         filepath.Join(dir, "time.go"),
		filepath.Join(src, "step_overlay.go"): filepath.Join(dir, "step.go"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "overlay.json"), string(overlay))
	path, err := build(dir, "-overlay", filepath.Join(dir, "overlay.json"))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestClockStep steps the wall clock by an hour either way. A suspended node
// looks the same to a process as a step forward: CLOCK_MONOTONIC stands still
// meanwhile, and CLOCK_REALTIME does not.
func TestClockStep(t *testing.T) {
	t.Parallel()
	stepping := buildStepped(t)
	const after = 8
	for _, by := range []int{3600, -3600} {
		t.Run(fmt.Sprintf("by %d s", by), func(t *testing.T) {
			t.Parallel()
			rt, socket := serve(t, fakeruntime.Options{}, 20)
			p := start(t, socket, options{binary: stepping, env: []string{fmt.Sprint("TIME_STEP_BY=", by), fmt.Sprint("TIME_STEP_AFTER=", after)}})
			p.awaitReason("")
			if off := p.clock(); off.Abs() > time.Minute {
				t.Fatalf("its clock is off by %s already", off)
			}
			p.await("the step", func(d *document) bool {
				if d.State != "healthy" {
					t.Errorf("it says %v", d)
				}
				return (p.clock() - time.Duration(by)*time.Second).Abs() < time.Minute
			})
			if lasts := p.lasts(); lasts < 0 || lasts > time.Minute {
				t.Errorf("after the step the verdict has lasted for %s", lasts)
			}
			for range 20 {
				d := p.relists(1)
				if d.State != "healthy" || d.LastSeenAge == nil || *d.LastSeenAge > 30 {
					t.Errorf("after the step it says %v, last seen %v s ago", d, d.LastSeenAge)
				}
			}
			if n := strings.Count(p.log.String(), `"msg":"verdict changed","state":"unhealthy"`) + strings.Count(p.log.String(), `"msg":"verdict changed","state":"degraded"`); n > 0 {
				t.Errorf("the verdict changed for the worse %d times", n)
			}
			p.goesOn(rt)
		})
	}
}

// lasts is for how long the verdict has stood, as a reader of the status works it
// out.
func (p *plegd) lasts() time.Duration {
	p.t.Helper()
	_, body, err := p.get(p.local, "/api/v1/status")
	var d struct{ At, Since time.Time }
	if err == nil {
		err = json.Unmarshal([]byte(body), &d)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return d.At.Sub(d.Since)
}

// clock is how far plegd's wall clock is ahead of the test's.
func (p *plegd) clock() time.Duration {
	p.t.Helper()
	_, body, err := p.get(p.local, "/api/v1/status")
	var d struct{ At time.Time }
	if err == nil {
		err = json.Unmarshal([]byte(body), &d)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return time.Until(d.At)
}
