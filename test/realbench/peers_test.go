//go:build e2e

package realbench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/runtime"
)

const (
	// peerLimit is how long a peer has to name a fault, and to be well after its end.
	peerLimit = 75 * time.Second
	// npdInterval is invoke_interval of node-problem-detector's health check as it is shipped.
	npdInterval = 10 * time.Second
)

// A peer watches the runtime beside plegd. ask returns the problem that it states, "" for none.
type peer struct {
	name  string
	every time.Duration
	ask   func() string
}

// TestPeers prints how long plegd, node-problem-detector's health checker and crictl take to state
// a fault, and to be well after its end. It fails where plegd states nothing: how the others do is
// not ours to assert.
func TestPeers(t *testing.T) {
	containerd := runtime.NewContainerd(t, runtime.ContainerdOptions{})
	containerd.CRI(t).RunPods(10, 1)
	plegd := lab.NewPlegd(t, containerd.Socket, lab.PlegdOptions{})
	plegd.AwaitState(time.Minute, "healthy")
	peers := []peer{{"plegd", 100 * time.Millisecond, func() string {
		s, err := plegd.Status()
		if err != nil {
			return err.Error()
		}
		return s.Reason
	}}}
	if dir := os.Getenv("PLEGD_BENCH_NPD"); dir != "" {
		crictl := filepath.Join(dir, "crictl")
		peers = append(peers,
			peer{"node-problem-detector", npdInterval, command(filepath.Join(dir, "health-checker"), "--component=cri", "--enable-repair=false",
				"--crictl-path="+crictl, "--cri-socket-path=unix://"+containerd.Socket, "--cooldown-time=2m", "--health-check-timeout=60s")},
			peer{"crictl ps", time.Second, command(crictl, "--runtime-endpoint=unix://"+containerd.Socket, "--timeout=2s", "ps")})
	}
	fmt.Printf("%s; %s, 10 pods; seconds from the fault until it is stated / from its end until well\n", time.Now().UTC().Format("2006-01-02"), runtime.Version())
	for _, fault := range []struct {
		name  string
		begin func() (end func())
	}{
		{"SIGSTOP", func() func() { containerd.Freeze(); return containerd.Thaw }},
		{"killed", func() func() {
			containerd.Kill()
			return func() { containerd.Start(); containerd.AwaitAnswer() }
		}},
		{"limit of 8 descriptors", func() func() { return containerd.LimitFiles(8) }},
	} {
		end := fault.begin()
		stated := await(peers, func(text string) bool { return text != "" })
		end()
		well := await(peers, func(text string) bool { return text == "" })
		for i, p := range peers {
			fmt.Printf("%-24s %-24s %6s / %6s  %s\n", fault.name, p.name, stated[i].took, well[i].took, stated[i].text)
		}
		if stated[0].text == "" || stated[0].took == never || well[0].took == never {
			t.Errorf("%s: plegd states %+v, and then %+v", fault.name, stated[0], well[0])
		}
	}
}

// never stands for a time above peerLimit.
const never = "never"

// A statement is what a peer said, and the seconds until then.
type statement struct{ took, text string }

// await asks all peers at once, each at its interval, until what each states is as wanted.
func await(peers []peer, wanted func(string) bool) []statement {
	out := make([]statement, len(peers))
	begin := time.Now()
	var asking sync.WaitGroup
	for i, p := range peers {
		asking.Go(func() {
			out[i] = statement{took: never}
			time.Sleep(rand.N(p.every)) // a fault does not wait for the peer's turn
			tick := time.NewTicker(p.every)
			defer tick.Stop()
			for time.Since(begin) < peerLimit {
				text := p.ask()
				if wanted(text) {
					out[i] = statement{took: fmt.Sprintf("%.1f", time.Since(begin).Seconds()), text: text}
					return
				}
				<-tick.C
			}
		})
	}
	asking.Wait()
	return out
}

// command returns a check that runs a program: the begin of its output's last line where it fails.
func command(name string, args ...string) func() string {
	return func() string {
		ctx, cancel := context.WithTimeout(context.Background(), peerLimit)
		defer cancel()
		out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
		if err == nil {
			return ""
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return fmt.Sprintf("%.40s", lines[len(lines)-1])
	}
}
